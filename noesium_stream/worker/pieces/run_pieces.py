"""What the steps of one run see of their worker's outbox."""

from __future__ import annotations

from collections.abc import Callable

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.stream_pieces import Attempt
from noesium_stream.worker.pieces.outbox import PieceOutbox


class OwnPieces:
    """Implements the kernel's `RunPieces` for a run that this process owns.

    Args:
        outbox: of the run's agent.
        epoch: the epoch of the owner.
        is_open: whether the run is carried on here.
    """

    def __init__(self, outbox: PieceOutbox, epoch: int, is_open: Callable[[], bool]) -> None:
        self._outbox = outbox
        self._epoch = epoch
        self._is_open = is_open

    def begin(self) -> Attempt:
        """See `RunPieces.begin`."""
        return Attempt(self._epoch, self._outbox.execution())

    async def write(self, event: EventEnvelope, size: int) -> None:
        """See `RunPieces.write`."""
        if self._is_open():
            await self._outbox.put(event, size)

    def offer(self, event: EventEnvelope, size: int) -> None:
        """See `RunPieces.offer`."""
        if self._is_open():
            self._outbox.offer(event, size)

    async def flush(self) -> None:
        """See `RunPieces.flush`."""
        await self._outbox.flush()
