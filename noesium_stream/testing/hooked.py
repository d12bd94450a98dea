"""A log wrapper that passes commits through a function, which can fail, delay or count them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from noesium_stream.log.port import EventLog, LogWriter, Outgoing, Position, Tenure

Commit = Callable[[Sequence[Outgoing]], Awaitable[list[Position]]]
"""Commits to the wrapped log."""

Hook = Callable[[Sequence[Outgoing], Commit], Awaitable[list[Position]]]
"""Gets each commit and the function that performs it; may call it, raise before or after, or wait."""


class HookedLog:
    """An `EventLog` that delegates everything, with the commits of its writers passed through `hook`."""

    def __init__(self, inner: EventLog, hook: Hook) -> None:
        self.inner = inner
        self.hook = hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def writer(self, writer_id: str, *, tenure: Tenure | None = None) -> Any:
        """As `EventLog.writer`."""
        return HookedWriter(await self.inner.writer(writer_id, tenure=tenure), self.hook)


class HookedWriter:
    """A `LogWriter` whose commits pass through `hook`."""

    def __init__(self, inner: LogWriter, hook: Hook) -> None:
        self._inner = inner
        self._hook = hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def commit(self, outgoing: Sequence[Outgoing]) -> list[Position]:
        """As `LogWriter.commit`."""
        return await self._hook(outgoing, self._inner.commit)
