"""What a tool tells of its call while it goes on, for people who watch the run.

As pieces, it is written beside the transactions, leaves no trace in the journal, and may be lost; in a replay
nobody is there who takes it. A tool may tell as often as it likes: what comes within `PAUSE_S` after the last
one that was written is left out.
"""

from __future__ import annotations

import math
from typing import Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.stream_progress import MAX_MESSAGE
from noesium_stream.event.sealing.seal import subject_entry
from noesium_stream.event.standard.attributes import MAX_NUMBER
from noesium_stream.event.standard.stream import ToolProgressed
from noesium_stream.kernel.journal import RunPieces
from noesium_stream.kernel.run_context import current_run
from noesium_stream.kernel.step.position import Place

PAUSE_S: Final = 0.5
"""Between two that are written of one call."""
_SIZE: Final = 1_024
"""Bytes that one takes in the queue, about."""


class CallProgress:
    """Takes the progress of one call, from any task or thread.

    Args:
        place: the step that makes the call; the calling code is in its run.
        tool: the tool's name.
        call_id: the id of the call.
    """

    def __init__(self, place: Place, tool: str, call_id: str) -> None:
        self._place = place
        self._tool = tool
        self._call_id = call_id
        self._run = current_run()
        self._next = -math.inf

    def tell(self, done: float, total: float | None, message: str) -> None:
        """Tell how far the call is; see `ToolContext.progress`."""
        place, run, now = self._place, self._run, self._place.clock.monotonic()
        pieces = place.journal.pieces
        if run is None or pieces is None or place.silent or place.closed or now < self._next:
            return
        self._next = now + PAUSE_S
        if run.on_its_loop():
            self._write(pieces, done, total, message)
        else:
            run.loop.call_soon_threadsafe(self._write, pieces, done, total, message)

    def _write(self, pieces: RunPieces, done: float, total: float | None, message: str) -> None:
        place = self._place
        told = ToolProgressed(
            run_id=place.run_id,
            node=place.node,
            step=place.key[0],
            task_path=place.key[1],
            tool=self._tool,
            call_id=self._call_id,
            done=_bounded(done),
            total=None if total is None else _bounded(total),
            message=message[:MAX_MESSAGE],
        )
        pieces.offer(self._event(told), _SIZE)

    def _event(self, told: ToolProgressed) -> EventEnvelope:
        place = self._place
        return EventEnvelope(
            event_id=place.clock.uuid7(),
            event_type=told.event_type(),
            event_version=told.event_version(),
            timestamp_ms=place.clock.now_ms(),
            producer=place.journal.identity.agent,
            trace=place.span(),
            causation_id=place.entered.event_id,
            correlation_id=place.journal.identity.correlation_id,
            partition_key=place.run_id,
            payload=told.payload(),
            metadata=subject_entry(place.entered.metadata),
        )


def _bounded(number: float) -> float:
    """A number that JSON has."""
    return 0.0 if math.isnan(number) else float(max(-MAX_NUMBER, min(MAX_NUMBER, number)))
