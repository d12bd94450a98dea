"""Answers in pieces as events of an A2A stream, between the changes of the task.

A piece is an update of an artifact of its node, which is no artifact of the task: only `result` is. Pieces
come from a topic of their own, beside the journal, so that a cursor has a part for each: `OFFSET.N`, or
`OFFSET.N~PIECE` behind a piece.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from a2a.types import Artifact, TaskArtifactUpdateEvent

from noesium_stream.a2a.journals import Seen
from noesium_stream.a2a.parts import part_of, to_struct
from noesium_stream.a2a.tasks import Change, TaskFold
from noesium_stream.client import Run
from noesium_stream.clock import derived_id
from noesium_stream.errors import EventStoreError
from noesium_stream.event.rules.stream_pieces import Piece
from noesium_stream.serving.run_fold import Cursor, parse_cursor

MARK: Final = "~"
"""Between the two parts of a cursor."""
LAST_S: Final = 10.0
"""How long the last pieces of a run that has ended are waited for, in seconds."""

_LOGGER: Final = logging.getLogger(__name__)


def split_cursor(text: str) -> tuple[Cursor, str | None]:
    """Return the two parts of a cursor.

    Raises:
        EventValidationError: the first one is no cursor.
    """
    place, mark, piece = text.partition(MARK)
    return parse_cursor(place), piece if mark else None


class PieceEvents:
    """Makes events of the pieces of one stream, and gives the others their cursors.

    Args:
        fold: the task.
        cursor: of the last piece that the client has; None: it has none.

    Attributes:
        place: the first part of the cursor of the last event; empty: there was none.
    """

    def __init__(self, fold: TaskFold, cursor: str | None = None) -> None:
        self.place = ""
        self._fold = fold
        self._cursor = cursor
        self._artifacts: set[str] = set()

    def mark(self, event: Seen) -> Seen:
        """Add the place of the last piece to the cursor of an event; it is sent next."""
        labels = event.metadata["noesium"]
        if "cursor" in labels:
            self.place = labels["cursor"]
            labels["cursor"] = self._full()
        return event

    def event(self, piece: Piece) -> TaskArtifactUpdateEvent:
        """Make the event of the next piece; it begins its artifact, or goes on with it."""
        self._cursor = piece.cursor
        artifact = derived_id(self._fold.task_id, piece.node, str(piece.step), piece.task_path)
        goes_on = artifact in self._artifacts and not piece.restarted
        self._artifacts.add(artifact)
        said = {"piece": piece.sequence, "node": piece.node, "step": piece.step, "cursor": self._full()}
        if piece.missing:
            said["missing"] = piece.missing
        return TaskArtifactUpdateEvent(
            task_id=self._fold.task_id,
            context_id=self._fold.context_id,
            artifact=Artifact(artifact_id=artifact, name=piece.node[:200], parts=[part_of(piece.data)]),
            append=goes_on,
            metadata=to_struct({"noesium": said}),
        )

    def _full(self) -> str:
        return self.place if self._cursor is None else f"{self.place}{MARK}{self._cursor}"


async def pieces_of(run: Run, cursor: str | None) -> AsyncGenerator[Piece, None]:
    """Yield the pieces of a run; where they cannot be read there are none, and the task goes on.

    Raises:
        ConfigError: the cursor is not one.
    """
    try:
        async with aclosing(run.pieces(cursor)) as pieces:
            async for piece in pieces:
                yield piece
    except EventStoreError as error:
        _LOGGER.warning("the pieces of run %s cannot be read: %s", run.id, error.message)


async def merged(
    changes: AsyncGenerator[Change, None],
    pieces: AsyncGenerator[Piece, None],
    events: PieceEvents,
    fold: TaskFold,
    stops: Callable[[], bool],
) -> AsyncGenerator[Seen, None]:
    """Yield the events of changes and pieces as they come, the end of the task after its last piece.

    Args:
        changes: of the task; each changes the fold when it is asked for.
        pieces: of the run.
        events: makes the events.
        fold: the task.
        stops: whether the stream ends behind the change that was yielded last.
    """
    change = asyncio.ensure_future(anext(changes, None))
    piece = asyncio.ensure_future(anext(pieces, None))
    try:
        while True:
            if events.place:
                await asyncio.wait([change, piece], return_when=asyncio.FIRST_COMPLETED)
                if change.done() and fold.ended:
                    await asyncio.wait([piece], timeout=LAST_S)
                if piece.done() and (found := piece.result()) is not None:
                    yield events.event(found)
                    piece = asyncio.ensure_future(anext(pieces, None))
                    continue
            await asyncio.wait([change])  # no piece comes before the run has started, or behind the last one
            made = change.result()
            if made is None:
                return
            yield events.mark(made.event)
            if stops():
                return
            change = asyncio.ensure_future(anext(changes, None))
    finally:
        for waiting in (change, piece):
            waiting.cancel()
        await asyncio.gather(change, piece, return_exceptions=True)
