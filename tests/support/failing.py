"""A log whose writers' commits fail, or wait, when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit

When = Callable[[int, Sequence[Outgoing]], bool]
"""Judges a commit: how many there were of all writers (this one included), and what it holds."""


class FailingLog(HookedLog):
    """Passes everything through; the first commit that `when` picks fails with `error`.

    With `reaches_log` it is on the log all the same. While `gate` is closed, commits that it holds back wait.
    Commits of `partition.acquired` are neither counted nor held.
    """

    def __init__(self, inner: EventLog, when: When, error: Exception, *, reaches_log: bool) -> None:
        super().__init__(inner, self._commit)
        self.when = when
        self.error = error
        self.reaches_log = reaches_log
        self.commits = 0
        self.failed = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def _commit(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        if any(record.envelope.event_type == "partition.acquired" for record in outgoing):
            return await commit(outgoing)
        await self.gate.wait()
        self.commits += 1
        if self.failed or not self.when(self.commits, outgoing):
            return await commit(outgoing)
        self.failed = True
        if self.reaches_log:
            await commit(outgoing)
        raise self.error
