"""Writer of one tenure: commits for all runs of the partition, and proves that it is still owned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from noesium_stream.errors import LogClosedError
from noesium_stream.event.standard import PartitionConfirmed
from noesium_stream.log.port import LogWriter, Outgoing, Position
from noesium_stream.worker.commit.committer import Committer, Moment, Submission
from noesium_stream.worker.context import PartitionContext

DRAIN_S: Final = 5.0
"""How long giving a partition up waits for its submissions to reach the log, in seconds."""

PROOF_S: Final = 2.5
"""How long a successful commit proves ownership of the partition, in seconds since the commit began.

A member of a group sends a heartbeat every second, and its partitions become free 4 s (SQLite) or 6 s (Kafka)
after the last one."""


class PartitionWriter:
    """Commits for one tenure of a partition.

    Args:
        context: context of the partition.
        writer: the fenced writer; its first commit has succeeded.
        begun: when that commit began.
        sequences: sequence numbers of the next records of open runs, by run id.
        on_lost: called once with the error by which the writer was lost.
        on_commit: see `Committer`.

    Attributes:
        lost: set once the writer is lost.
        is_open: whether submissions can reach the log, as far as is known.
        epoch: epoch of the writer.
        submit: see `Committer.submit`.
    """

    def __init__(
        self,
        context: PartitionContext,
        writer: LogWriter,
        begun: Moment,
        sequences: dict[str, int],
        on_lost: Callable[[Exception], None],
        on_commit: Callable[[Sequence[Outgoing], Sequence[Position]], None],
    ) -> None:
        self.lost = asyncio.Event()
        self.epoch: Final = writer.epoch
        self._context = context
        self._writer = writer
        self._on_lost = on_lost
        self._asked: Submission | None = None
        self._committer = committer = Committer(
            writer, context.journal, context.clock, context.progress, self.lose, on_commit
        )
        committer.sequences.update(sequences)
        committer.proved = begun
        self.submit: Final = committer.submit
        self.is_open = True

    def lose(self, error: Exception) -> None:
        """Mark the writer as lost: it commits nothing any more."""
        if not self.lost.is_set():
            self.lost.set()
            self.is_open = False
            self._on_lost(error)

    def written(self, run_id: str) -> int | None:
        """Return the number of an open run's records in the journal, as far as it is known here."""
        return self._committer.sequences.get(run_id)

    def forget(self, run_id: str) -> None:
        """Forget a run that has ended: it has no next record."""
        self._committer.sequences.pop(run_id, None)

    async def assure(self) -> None:
        """Return when the partition is known to be owned here (see `owned`).

        Raises the error by which it was lost.
        """
        context, said = self._context, "asking the log whether it is still owned here"
        while True:
            if not self.is_open:
                raise LogClosedError(f"{context.name} was given up")
            if self.owned():
                return
            if self._asked is None or self._asked.ended:  # one confirmation for all waiting callers
                context.tell(f"{context.name}: {said}")
                self._asked = self.submit([self._confirmation()])
            await self._asked.wait()
            said = f"its commits take more than {PROOF_S:g} s, and no effect is called before one is sooner"

    def owned(self) -> bool:
        """Whether the partition is known to be owned here; a commit proves it for `PROOF_S`. Thread-safe."""
        proved = self._committer.proved
        if proved is None or not self.is_open:
            return False
        return proved.age_s(self._context.clock) <= PROOF_S

    async def drain(self) -> None:
        """Wait for `DRAIN_S` at most until all submissions have reached the log; refuse further ones."""
        await self._committer.drain(DRAIN_S)
        self.is_open = False
        await self._committer.close()

    async def close(self) -> None:
        """Close the log's writer."""
        self.is_open = False
        await self._writer.close()

    def _confirmation(self) -> Outgoing:
        """Make a record whose commit proves that its writer is not fenced."""
        context = self._context
        return context.record(
            PartitionConfirmed(
                agent_type=context.agent_type,
                partition=context.partition,
                epoch=self.epoch,
                instance_id=context.agent_ref.instance_id,
            )
        )
