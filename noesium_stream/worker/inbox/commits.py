"""Commits of one admission: a batch goes to the log in one transaction, and is acted on once it is there.

Commands of unknown runs are decided without waiting for the commits before them: those lie in front of them
on the log, or neither gets there. So they are submitted one after the other (`commit_later`), and everything
else waits for those (`settled`): what it is judged by is on the log.
"""

from __future__ import annotations

from collections.abc import Callable

from noesium_stream.errors import LogClosedError
from noesium_stream.worker.commit.committer import Submission
from noesium_stream.worker.commit.partition_writer import PartitionWriter
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.inbox.batch import Batch
from noesium_stream.worker.runs.open_runs import OpenRuns
from noesium_stream.worker.runs.slots import Holder
from noesium_stream.worker.state.partition_state import PartitionState


class Commits:
    """The commits of one admission.

    Args:
        context: of the partition.
        state: of the partition.
        writer: of the tenure.
        runs: the open runs of the tenure.
        holder: what the partition has of the slots.

    Attributes:
        closed: nothing is decided any more.
    """

    def __init__(
        self,
        context: PartitionContext,
        state: PartitionState,
        writer: PartitionWriter,
        runs: OpenRuns,
        holder: Holder,
    ) -> None:
        self.closed = False
        self._context = context
        self._state = state
        self._writer = writer
        self._runs = runs
        self._holder = holder
        self._under_way: dict[Submission, None] = {}

    def require_open(self) -> None:
        """Raise `LogClosedError` where nothing is decided any more.

        The runs are forgotten then, and what is for them would be skipped; or what they say has happened is
        not on the log.
        """
        if self.closed or not self._writer.is_open:
            raise LogClosedError("the partition was given up meanwhile")

    async def settled(self) -> None:
        """Return when all that was submitted without waiting is on the log, or will never be."""
        while self._under_way:
            await next(iter(self._under_way)).settled()
        self.require_open()

    async def commit(self, batch: Batch, fair: str | None = None) -> None:
        """Commit what is decided; `fair` is the fairness key whose turn it was last, if it was one."""
        if batch.outgoing:
            await self._submit(batch, fair).wait()
            batch.outgoing = []

    def commit_later(
        self, batch: Batch, fair: str | None, on_end: Callable[[Exception | None], None]
    ) -> None:
        """Submit what is decided, and do not wait.

        Args:
            batch: what is decided.
            fair: as in `commit`.
            on_end: called when it is on the log (None), or with the error of its commit.
        """
        sent = self._submit(batch, fair)
        self._under_way[sent] = None

        def ended(sent: Submission) -> None:
            self._under_way.pop(sent, None)
            on_end(sent.error)

        sent.on_end = ended
        if sent.ended:
            ended(sent)

    def _submit(self, batch: Batch, fair: str | None) -> Submission:
        batch.mark(self._context.journal, self._state, fair)
        return self._writer.submit(batch.outgoing)

    def act(self, batch: Batch) -> None:
        """Start runs and tell others of what is for them, once that is on the log."""
        for line in batch.told:
            self._context.tell(line)
        for run_id, session in batch.begun.items():
            if self._runs.loaded.get(run_id) is session:  # else the partition was lost again by now
                self._runs.start(session, ahead=run_id in batch.ahead)
        for session in batch.touched.values():
            self._runs.deliver(session)

    def act_later(self, batch: Batch) -> None:
        """The same; but runs that started out of turn go on when there are slots, unless they are ending."""
        if self.closed:
            return  # they go on with the next owner
        begun = {run_id: session for run_id, session in batch.begun.items() if session.task is None}
        batch.begun = {}
        for run_id, session in begun.items():
            session.close()
            self._runs.loaded.pop(run_id, None)
            self._holder.gives_way(run_id)
            batch.touched.pop(run_id, None)
        self._runs.eviction.adopt(begun)
        self._holder.resume(begun)
        self.act(batch)
