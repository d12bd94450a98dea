"""Group commit: the ready records of all runs of a partition go to the log in one transaction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CommitUnknownError,
    EventValidationError,
    FencedError,
    LogClosedError,
    LogFullError,
    LogUnavailableError,
    RecordTooLargeError,
)
from noesium_stream.log.headers import SEQUENCE
from noesium_stream.log.port import LogWriter, Outgoing, Position
from noesium_stream.worker.progress_lines import LOG_ANSWERS, waiting_for_log

MAX_RECORDS: Final = 2_000
UNNUMBERED: Final = (SEQUENCE, b"")
"""First header of a run's journal record; the committer replaces it by the sequence number."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class Moment(NamedTuple):
    """A point in time by both of a clock's times.

    The monotonic time stands still while the machine sleeps, and the wall-clock time may be set.
    """

    monotonic_s: float
    now_ms: int

    @classmethod
    def now(cls, clock: Clock) -> Moment:
        """Return the present moment."""
        return cls(clock.monotonic(), clock.now_ms())

    def age_s(self, clock: Clock) -> float:
        """Return how long ago the moment was, in seconds: the larger of the two clocks' answers."""
        return max(clock.monotonic() - self.monotonic_s, (clock.now_ms() - self.now_ms) / 1000)


class Submission:
    """Records that belong together, on their way to the log.

    A submission ends once. Each waiting caller has its own future, which is set at the end: every step of
    every run waits here, and a shared, shielded future would take one more turn of the event loop.

    Args:
        records: the records to commit.

    Attributes:
        ended: whether the outcome is known; the records are dropped then.
        error: why the records are not on the log; None if they are, or if the outcome is not known yet.
        on_end: called with the submission when it ends.
    """

    __slots__ = ("_waiting", "ended", "error", "on_end", "records")

    def __init__(self, records: Sequence[Outgoing]) -> None:
        self.records = records
        self.ended = False
        self.error: Exception | None = None
        self.on_end: Callable[[Submission], None] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def end(self, error: Exception | None = None) -> None:
        """End the submission: committed, or failed with an error; only the first call counts.

        Its submitter may end it with an error before it is sent: it is then withdrawn.
        """
        if self.ended:
            return
        self.ended, self.error = True, error
        if self.on_end is not None:
            self.on_end(self)
        self.records, self.on_end = (), None
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def wait(self) -> None:
        """Return when the records are on the log; a cancelled caller does not cancel the commit.

        Raises:
            Exception: the error of the failed commit.
        """
        await self.settled()
        if self.error is not None:
            raise self.error

    async def settled(self) -> None:
        """Return when the submission has ended, committed or failed."""
        if not self.ended:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting


class Committer:
    """Commits submissions in their order, all that wait in one transaction (up to `MAX_RECORDS`).

    The records of a run are numbered when they are committed, not when they are staged: a refused record
    leaves no gap. A submission that was withdrawn (`Submission.end`) before its turn is not sent. The
    committer waits while the log is full or unavailable.

    When the writer has lost its partition, all waiting submissions fail and `on_lost` is called once. The
    same happens if `on_commit` raises, which is called with the journal records of each commit and their
    offsets: the partition is then read anew.

    Attributes:
        sequences: next sequence number by run id.
        proved: when the last successful commit began; the partition was owned here then, or later.
    """

    def __init__(
        self,
        writer: LogWriter,
        journal: str,
        clock: Clock,
        progress: Callable[[str], None],
        on_lost: Callable[[Exception], None],
        on_commit: Callable[[Sequence[Outgoing], Sequence[Position]], None] = lambda records, places: None,
    ) -> None:
        self.sequences: dict[str, int] = {}
        self.proved: Moment | None = None
        self._writer = writer
        self._journal = journal
        self._clock = clock
        self._progress = progress
        self._on_lost = on_lost
        self._on_commit = on_commit
        self._queue: deque[Submission] = deque()
        self._wake = asyncio.Event()
        self._last: Submission | None = None
        self._lost: Exception | None = None
        self._task = asyncio.create_task(self._work(), name=f"committer {writer.writer_id}")

    def submit(self, records: Sequence[Outgoing]) -> Submission:
        """Queue records that belong together."""
        submission = Submission(records)
        if self._lost is not None:
            submission.end(self._lost)
            return submission
        self._queue.append(submission)
        self._last = submission
        self._wake.set()
        return submission

    async def drain(self, patience_s: float) -> None:
        """Wait for `patience_s` at most until all submissions have reached the log or have failed."""
        if self._last is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._last.settled()

    async def close(self) -> None:
        """Let the open commit end, fail all waiting submissions, and stop."""
        self._lost = self._lost or LogClosedError("the partition was given up")
        self._wake.set()
        # Not `await self._task`: a cancelled caller must not cancel the open commit.
        await asyncio.wait((self._task,))
        self._task.result()
        self._fail(self._lost)

    async def _work(self) -> None:
        while self._lost is None:
            await self._wake.wait()
            self._wake.clear()
            while self._queue and self._lost is None:
                await self._commit(self._take())

    def _take(self) -> list[Submission]:
        taken = [self._queue.popleft()]
        count = len(taken[0].records)
        while self._queue and count + len(self._queue[0].records) <= MAX_RECORDS:
            taken.append(self._queue.popleft())
            count += len(taken[-1].records)
        return taken

    async def _commit(self, requests: list[Submission]) -> None:
        pause = _FIRST_PAUSE_S
        requests = [request for request in requests if not request.ended]
        while requests:
            numbers: dict[str, int] = {}
            others, own = self._ordered(requests, numbers)
            begun = Moment.now(self._clock)
            try:
                positions = await self._writer.commit(others + own)
            except (LogFullError, LogUnavailableError) as error:
                self._progress(waiting_for_log(error))
                if self._lost is not None:
                    return _fail(requests, self._lost)
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            except (EventValidationError, RecordTooLargeError) as error:
                return await self._one_by_one(requests, error)
            except (FencedError, CommitUnknownError, LogClosedError) as error:
                return self._give_up(requests, error)
            except Exception as error:
                # The failure is of an unknown kind: treat the partition as lost, so that it is read anew.
                return self._give_up(requests, error)
            else:
                self.proved = begun
                if pause != _FIRST_PAUSE_S:
                    self._progress(LOG_ANSWERS)
                return self._done(requests, own, positions[len(others) :], numbers)
        return None

    def _done(
        self,
        requests: list[Submission],
        own: Sequence[Outgoing],
        positions: Sequence[Position],
        numbers: dict[str, int],
    ) -> None:
        self.sequences.update(numbers)
        try:
            self._on_commit(own, positions)
        except Exception as error:
            return self._give_up(requests, error)
        for request in requests:
            request.end()
        return None

    async def _one_by_one(self, requests: list[Submission], error: Exception) -> None:
        """Commit each submission alone after a refusal, so that only the one with the bad record fails."""
        if len(requests) == 1:
            return _fail(requests, error)
        for request in requests:
            if self._lost is not None:
                _fail([request], self._lost)
            else:
                await self._commit([request])
        return None

    def _ordered(
        self, requests: list[Submission], numbers: dict[str, int]
    ) -> tuple[list[Outgoing], list[Outgoing]]:
        """Split the records into those for other topics and those for the journal, and number the latter.

        The journal's records are sent last, so a torn commit would lack its end in the journal.
        """
        others: list[Outgoing] = []
        own: list[Outgoing] = []
        for request in requests:
            for record in request.records:
                if record.topic == self._journal:
                    own.append(self._numbered(record, numbers))
                else:
                    others.append(record)
        return others, own

    def _numbered(self, record: Outgoing, numbers: dict[str, int]) -> Outgoing:
        envelope, topic, partition, key, headers = record
        if not headers or headers[0] is not UNNUMBERED:
            return record
        number = numbers.get(key)
        if number is None:
            number = self.sequences.get(key, 0)
        numbers[key] = number + 1
        return Outgoing(envelope, topic, partition, key, ((SEQUENCE, str(number).encode()), *headers[1:]))

    def _give_up(self, requests: list[Submission], error: Exception) -> None:
        self._lost = error
        _fail(requests, error)
        self._fail(error)
        self._on_lost(error)

    def _fail(self, error: Exception) -> None:
        _fail(self._queue, error)
        self._queue.clear()


def _fail(requests: Iterable[Submission], error: Exception) -> None:
    for request in requests:
        request.end(error)
