"""A log whose commits pass through a function first: to cut them off, to hold them, to count them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from noesium_stream.log.port import EventLog, LogWriter, Outgoing, Position, Tenure

Commit = Callable[[Sequence[Outgoing]], Awaitable[list[Position]]]
"""Commits to the log behind."""

Hook = Callable[[Sequence[Outgoing], Commit], Awaitable[list[Position]]]
"""Is given each commit and what performs it: it may do so, raise instead, raise afterwards, or wait."""


class HookedLog:
    """An `EventLog` that passes everything through, commits of its writers by way of `hook`."""

    def __init__(self, inner: EventLog, hook: Hook) -> None:
        self.inner = inner
        self.hook = hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def writer(self, writer_id: str, *, tenure: Tenure | None = None) -> Any:
        """See `EventLog.writer`."""
        return HookedWriter(await self.inner.writer(writer_id, tenure=tenure), self.hook)


class HookedWriter:
    """A `LogWriter` whose commits go by way of `hook`."""

    def __init__(self, inner: LogWriter, hook: Hook) -> None:
        self._inner = inner
        self._hook = hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, outgoing: Sequence[Outgoing]) -> list[Position]:
        """See `LogWriter.commit`."""
        return await self._hook(outgoing, self._inner.commit)
