"""Group commit: what the runs of a partition have ready goes to the log in one transaction."""

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
from noesium_stream.worker.submission import Submission
from noesium_stream.worker.waiting_lines import waiting_for_log

MAX_RECORDS: Final = 2_000
UNNUMBERED: Final = (SEQUENCE, b"")
"""First header of a run's journal record; the committer puts the number in."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class Moment(NamedTuple):
    """A point in time by both of a clock's times: where the machine slept the monotonic one stood still, and
    the other one may be set.
    """

    monotonic_s: float
    now_ms: int

    @classmethod
    def now(cls, clock: Clock) -> Moment:
        """This moment."""
        return cls(clock.monotonic(), clock.now_ms())

    def age_s(self, clock: Clock) -> float:
        """How long ago it was, at least."""
        return max(clock.monotonic() - self.monotonic_s, (clock.now_ms() - self.now_ms) / 1000)


class Committer:
    """Commits requests in the order in which they were submitted, as many at a time as have come.

    `proved` is when the last commit was begun that succeeded: then, or later, nobody had taken the partition.

    It numbers the records of each run (`sequences`: the next number by run id) when they are committed,
    not when they are staged: a refused record leaves no gap. What was withdrawn
    (`Submission.end`) before its turn is not sent. A log that is full or absent is waited for.
    A writer that has lost its partition fails everything that waits, and `on_lost` is told once. So it does
    where `on_commit`, which is given the journal's part of each commit with its offsets, raises: what is on
    the log is then read anew.
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
        """Wait until what was submitted has reached the log, or has failed; not longer than `patience_s`."""
        if self._last is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._last.settled()

    async def close(self) -> None:
        """Let the open commit end, refuse what waits, and stop."""
        self._lost = self._lost or LogClosedError("the partition was given up")
        self._wake.set()
        # Not the task itself: that who waits here is cancelled does not break the commit off.
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
                # Nothing is known of this failure: treat the partition as lost, so that it is read anew.
                return self._give_up(requests, error)
            else:
                self.proved = begun
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
        """A refused record fails its own request; the others' commits are not its hostages."""
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
        """What goes to others, and what goes to the journal; sent in this order, a torn commit lacks its own
        end.
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
