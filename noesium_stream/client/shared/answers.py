"""One request for all who ask the same at the same time, whose answer is remembered for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedAnswers(Generic[T]):
    """Answers by a name.

    Args:
        monotonic: seconds of a clock that never runs backwards.
        keep_s: how long an answer is remembered, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float], keep_s: float) -> None:
        self._monotonic = monotonic
        self._keep_s = keep_s
        self._known: dict[str, tuple[float, T]] = {}
        self._asked: dict[str, asyncio.Task[T]] = {}

    async def get(self, name: str, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer; raises what the request raises, which is remembered by nobody."""
        known = self._known.get(name)
        if known is not None and self._monotonic() - known[0] < self._keep_s:
            return known[1]
        asked = self._asked.get(name)
        if asked is None:
            asked = self._asked[name] = asyncio.create_task(self._ask(name, ask))
            asked.add_done_callback(self._told)
        # Who is cancelled leaves the request to the others.
        return await asyncio.shield(asked)

    def forget(self, name: str) -> None:
        """Ask anew the next time."""
        self._known.pop(name, None)
        self._asked.pop(name, None)

    async def _ask(self, name: str, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            answer = await ask()
            if self._asked.get(name) is asyncio.current_task():
                self._known[name] = self._monotonic(), answer
            return answer
        finally:
            if self._asked.get(name) is asyncio.current_task():
                del self._asked[name]

    @staticmethod
    def _told(asked: asyncio.Task[T]) -> None:
        if not asked.cancelled():
            asked.exception()  # raised to those who wait; perhaps nobody does any more
