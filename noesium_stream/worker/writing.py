"""What writes for a partition while it is owned: its fenced writer, and the commits of all its runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from noesium_stream.clock import Clock
from noesium_stream.errors import LogClosedError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log.port import EventLog, LogWriter, Outgoing, Position
from noesium_stream.worker.acquiring import confirmed
from noesium_stream.worker.committer import Committer, Moment
from noesium_stream.worker.submission import Submission

DRAIN_S: Final = 5.0
"""How long giving a partition up waits for what was sent to the log before."""

PROOF_S: Final = 2.5
"""For so long after it began, a commit that succeeded proves that nobody else has the partition.

A member of a group gives signs of life every second, and its partitions are free 4 s (SQLite) or 6 s (Kafka)
after the last one."""


class WritingOwner(Protocol):
    """Whose partition it is."""

    log: EventLog
    clock: Clock
    agent_ref: AgentRef
    partition: int
    inbox: str
    journal: str
    tell: Callable[[str], None]


class Writing:
    """The writer of one partition, from `hold` to `close`, and again.

    Args:
        owner: of the partition.
        progress: takes one line for people.
        on_lost: told once what the writer was lost by.
        on_commit: see `Committer`.

    Attributes:
        lost: set while the writer is lost, and not opened again.
    """

    def __init__(
        self,
        owner: WritingOwner,
        progress: Callable[[str], None],
        on_lost: Callable[[Exception], None],
        on_commit: Callable[[Sequence[Outgoing], Sequence[Position]], None],
    ) -> None:
        self.lost = asyncio.Event()
        self._owner = owner
        self._progress = progress
        self._on_lost = on_lost
        self._on_commit = on_commit
        self._writer: LogWriter | None = None
        self._committer: Committer | None = None
        self._asked: Submission | None = None
        self._proved: Moment | None = None

    @property
    def epoch(self) -> int | None:
        """That of the writer; None: there is none."""
        return None if self._writer is None else self._writer.epoch

    @property
    def open(self) -> bool:
        """Whether what is submitted gets to the log, as far as is known."""
        return self._committer is not None and not self.lost.is_set()

    def hold(self, writer: LogWriter, begun: Moment) -> None:
        """The partition was taken with this one, by a commit behind `begun`; it writes from `begin` on."""
        self._writer, self._proved = writer, begun
        self.lost.clear()

    def begin(self) -> Committer:
        """Begin to commit: the state is that of the journal's end."""
        if self._writer is None:
            raise ValueError("a writer is held before anything is committed")
        owner, self._asked = self._owner, None
        self._committer = Committer(
            self._writer, owner.journal, owner.clock, self._progress, self._on_lost, self._on_commit
        )
        self._committer.proved = self._proved
        return self._committer

    def submit(self, records: Sequence[Outgoing]) -> Submission:
        """Queue records for the next commit; see `Committer.submit`."""
        if self._committer is None:
            given_up = Submission(records)
            given_up.end(self._given_up())
            return given_up
        return self._committer.submit(records)

    def written(self, run_id: str) -> int | None:
        """How many records of an open run are in the journal, as far as they are known here."""
        return None if self._committer is None else self._committer.sequences.get(run_id)

    def forget(self, run_id: str) -> None:
        """The run has ended: it has no next record."""
        if self._committer is not None:
            self._committer.sequences.pop(run_id, None)

    async def assure(self) -> None:
        """Return when the partition is known to be owned here; see `owned`.

        Raises what says that it is not.
        """
        owner, said = self._owner, "asking the log whether it is still owned here"
        while True:
            committer, writer = self._committer, self._writer
            if committer is None or writer is None or self.lost.is_set():
                raise self._given_up()
            if self.owned():
                return
            if self._asked is None or self._asked.ended:  # one question for all who want to know
                owner.tell(f"{owner.journal}/{owner.partition}: {said}")
                self._asked = committer.submit([confirmed(owner, writer.epoch)])
            await self._asked.wait()
            said = f"its commits take more than {PROOF_S:g} s, and no effect is called before one is sooner"

    def owned(self) -> bool:
        """Whether it is known to be owned here: a commit proves it for `PROOF_S`. Any thread asks."""
        committer = self._committer
        if committer is None or committer.proved is None or self.lost.is_set():
            return False
        return committer.proved.age_s(self._owner.clock) <= PROOF_S

    async def drain(self) -> None:
        """Let what was submitted get to the log, for `DRAIN_S` at most; refuse what comes from here on."""
        if self._committer is not None:
            await self._committer.drain(DRAIN_S)
            await self._committer.close()
            self._committer = None

    async def close(self) -> None:
        """Let go of the writer."""
        if self._writer is not None:
            await self._writer.close()
            self._writer = None

    def _given_up(self) -> LogClosedError:
        return LogClosedError(f"{self._owner.journal}/{self._owner.partition} was given up")
