"""Pieces as the steps of one run see them: those that they write, and those of the runs that they call."""

from __future__ import annotations

from collections.abc import Callable

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.stream_pieces import Attempt
from noesium_stream.worker.pieces.arrivals import Listener, PieceArrivals
from noesium_stream.worker.pieces.outbox import PieceOutbox


class PieceTraffic:
    """The pieces of all runs of one agent in this process.

    Attributes:
        outbox: takes those that are written.
        arrivals: gives out those of called runs.
    """

    def __init__(self, outbox: PieceOutbox, arrivals: PieceArrivals) -> None:
        self.outbox = outbox
        self.arrivals = arrivals

    async def close(self) -> None:
        """Write what waits, and read no more."""
        await self.arrivals.close()
        await self.outbox.close()


class OwnPieces:
    """Implements the kernel's `RunPieces` for a run that this process owns.

    Args:
        traffic: of the run's agent.
        epoch: the epoch of the owner.
        is_open: whether the run is carried on here; called for each piece.
    """

    def __init__(self, traffic: PieceTraffic, epoch: int, is_open: Callable[[], bool]) -> None:
        self._outbox = traffic.outbox
        self._arrivals = traffic.arrivals
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

    def incoming(self) -> Listener:
        """See `RunPieces.incoming`."""
        return Listener(self._arrivals)
