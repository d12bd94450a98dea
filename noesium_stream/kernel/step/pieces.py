"""Pieces of an answer that a node writes while it works.

They are no effects and leave no trace in the journal: a node that is executed again writes them again, as
another execution. In a replay nobody is there who takes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import orjson
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph._internal._config import patch_configurable

from noesium_stream.errors import RecordTooLargeError, StateError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.rules.stream_pieces import MAX_PIECE_BYTES, Attempt
from noesium_stream.event.sealing.seal import subject_entry
from noesium_stream.event.standard.stream import StreamPiece
from noesium_stream.kernel.journal import RunPieces
from noesium_stream.kernel.run_context import current_run
from noesium_stream.kernel.step.position import Place

_CONF: Final = "configurable"
_RUNTIME: Final = "__pregel_runtime"
_LOGGER: Final = logging.getLogger(__name__)


class Closable(Protocol):
    """What ends with the body that has begun it."""

    def close(self) -> None:
        """End it."""


class StepPieces:
    """The pieces of one execution of a node's body.

    Args:
        place: the step.
        to: takes them; None: nobody does.

    Attributes:
        answers: the answers that the body reads in pieces.
    """

    def __init__(self, place: Place, to: RunPieces | None) -> None:
        self.answers: list[Closable] = []
        self._place = place
        self._to = to
        self._attempt: Attempt | None = None
        self._written = 0
        self._refused = False

    async def write(self, value: Any) -> None:
        """See `Step.write`."""
        self._place.check_open()
        data, size = self._sized(value)
        if self._to is not None and not self._place.silent:
            await self._to.write(self._event(self._to, data), size)

    def offer(self, value: Any) -> None:
        """Write a chunk of LangGraph's custom stream; one that is no piece is left out, which is said once.

        May be called in any thread that has the step.
        """
        run = current_run()
        if self._to is None or self._place.silent or self._place.closed or run is None:
            return
        try:
            data, size = self._sized(value)
        except (StateError, RecordTooLargeError) as error:
            if not self._refused:
                _LOGGER.warning("a chunk of the custom stream is no piece: %s", error.message)
            self._refused = True
            return
        if run.on_its_loop():
            self._hand_over(data, size)
        else:
            run.loop.call_soon_threadsafe(self._hand_over, data, size)

    async def finish(self) -> None:
        """Write the final event of this execution, if it has written any piece, and wait for them a little.

        So they are on the log before the node's result is, if the log takes them.
        """
        if self._to is None or self._attempt is None:
            return
        await self._to.write(self._event(self._to, None, final=True), 0)
        await self._to.flush()

    def close(self) -> None:
        """End what the body has left: it has returned, failed, or begins again."""
        for answer in self.answers:
            answer.close()

    def _hand_over(self, data: Any, size: int) -> None:
        if self._to is not None:
            self._to.offer(self._event(self._to, data), size)

    def _sized(self, value: Any) -> tuple[Any, int]:
        """A copy of the piece in its JSON form, and the size of that.

        Raises:
            StateError: it has none.
            RecordTooLargeError: it is too large.
        """
        data = to_json(value, "piece")
        size = len(orjson.dumps(data))
        if size > MAX_PIECE_BYTES:
            raise RecordTooLargeError(
                f"The node {self._place.node} writes a piece of {size:,} bytes as JSON; the most is "
                f"{MAX_PIECE_BYTES:,}.",
                hint="Write smaller pieces, one after the other.",
            )
        return data, size

    def _event(self, to: RunPieces, data: Any, *, final: bool = False) -> EventEnvelope:
        place, clock = self._place, self._place.clock
        if self._attempt is None:
            self._attempt = to.begin()
        identity, number = place.journal.identity, self._written
        piece = StreamPiece(
            run_id=place.run_id,
            node=place.node,
            step=place.key[0],
            task_path=place.key[1],
            epoch=self._attempt.epoch,
            execution=self._attempt.execution,
            data=data,
            pieces=number if final else None,
        )
        self._written += 1
        return EventEnvelope(
            event_id=clock.uuid7(),
            event_type=piece.event_type(),
            event_version=piece.event_version(),
            timestamp_ms=clock.now_ms(),
            producer=identity.agent,
            trace=place.span(),
            causation_id=place.entered.event_id,
            correlation_id=identity.correlation_id,
            partition_key=place.run_id,
            payload=piece.payload(),
            metadata=subject_entry(place.entered.metadata),
            stream_sequence=number,
            stream_final=True if final else None,
        )


def pieces_of(place: Place) -> StepPieces:
    """The pieces of a step's present execution."""
    if place.pieces is None:
        place.pieces = StepPieces(place, place.journal.pieces)
    found: StepPieces = place.pieces
    return found


async def finish_pieces(place: Place) -> None:
    """End the pieces of a body that has returned."""
    if place.pieces is not None:
        await pieces_of(place).finish()


class _Writer:
    """LangGraph's stream writer of a node: its chunks are pieces of the run's answer, too."""

    def __init__(self, place: Place, stream: Callable[[Any], None]) -> None:
        self._place = place
        self.stream: Callable[[Any], None] = stream

    def __call__(self, chunk: Any) -> None:
        self.stream(chunk)
        pieces_of(self._place).offer(chunk)


@contextmanager
def stream_writer(place: Place, config: RunnableConfig | None) -> Iterator[RunnableConfig | None]:
    """The configuration in which `get_stream_writer()` writes pieces."""
    runtime = (config or {}).get(_CONF, {}).get(_RUNTIME)
    if place.journal.pieces is None or config is None or runtime is None:
        yield config
        return
    stream = runtime.stream_writer
    if isinstance(stream, _Writer):  # of the node whose subgraph this node is in
        stream = stream.stream
    given = patch_configurable(config, {_RUNTIME: runtime.override(stream_writer=_Writer(place, stream))})
    token = var_child_runnable_config.set(given)  # where LangGraph looks for it
    try:
        yield given
    finally:
        var_child_runnable_config.reset(token)
