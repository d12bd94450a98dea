"""A log whose writers' commits fail, or wait, when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from noesium_stream.log.port import EventLog, LogWriter, Outgoing, Position

When = Callable[[int, Sequence[Outgoing]], bool]
"""Judges a commit: how many there were of all writers (this one included), and what it holds."""


class FailingLog:
    """Passes everything through; the first commit that `when` picks fails with `error`.

    With `reaches_log` it is on the log all the same. While `gate` is closed, commits that it holds back wait.
    Commits of `partition.acquired` are neither counted nor held.
    """

    def __init__(self, inner: EventLog, when: When, error: Exception, *, reaches_log: bool) -> None:
        self._inner = inner
        self.when = when
        self.error = error
        self.reaches_log = reaches_log
        self.commits = 0
        self.failed = False
        self.gate = asyncio.Event()
        self.gate.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def writer(self, writer_id: str) -> Any:
        return FailingWriter(self, await self._inner.writer(writer_id))


class FailingWriter:
    def __init__(self, log: FailingLog, inner: LogWriter) -> None:
        self._log = log
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, outgoing: Sequence[Outgoing]) -> list[Position]:
        log = self._log
        if any(record.envelope.event_type == "partition.acquired" for record in outgoing):
            return await self._inner.commit(outgoing)
        await log.gate.wait()
        log.commits += 1
        if log.failed or not log.when(log.commits, outgoing):
            return await self._inner.commit(outgoing)
        log.failed = True
        if log.reaches_log:
            await self._inner.commit(outgoing)
        raise log.error
