"""What a run does in this process right now: whether something works, or all of it waits for others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from noesium_stream.event.standard import EffectReported


class Heir(Protocol):
    """Who takes over what a run leaves under way in this process."""

    def keep(self, call: asyncio.Task[Any]) -> None:
        """Hold on to a call that goes on."""

    def report(self, event: EffectReported) -> None:
        """Tell the run's next owner what came of one."""


class Activity:
    """The steps of a run that are under way, and which of them wait.

    A step waits while one of its tasks waits for others (an answer, a signal, a timer). What else it may have
    under way at the same time without an effect (nothing on the log says so) does not count here: whoever
    drops a run from memory looks for it (the worker's `rest`).

    Attributes:
        changes: grows with everything that happens: the same number later means that nothing did.
        begun: the effects that were begun here, in this stay of the run.
        heir: takes what calls come to that end after the run was given up; None: it was not, or nobody does.
        assured: returns when it is known, as of this moment, that the run is still this process's; raises
            where it is not. None: there is nobody who could take it.
        owned: whether that is known without asking; from any thread.
    """

    __slots__ = (
        "_calls",
        "_calls_ended",
        "_gate",
        "_steps",
        "_waits",
        "_working",
        "assured",
        "begun",
        "changes",
        "heir",
        "owned",
    )

    def __init__(self) -> None:
        self._steps: dict[object, object | None] = {}
        self._waits: defaultdict[object | None, int] = defaultdict(int)
        self._working = 0
        self._calls = 0
        self._calls_ended: asyncio.Event | None = None
        self._gate: asyncio.Event | None = None
        self.changes = 0
        self.begun: set[str] = set()
        self.heir: Heir | None = None
        self.assured: Callable[[], Awaitable[None]] | None = None
        self.owned: Callable[[], bool] = lambda: True

    def enter(self, step: object, within: object | None) -> None:
        """A step begins, perhaps within another one's node (a subgraph)."""
        self._steps[step] = within
        self.changes += 1

    def leave(self, step: object) -> None:
        """It ends, one way or the other."""
        self._steps.pop(step, None)
        self.changes += 1

    @contextmanager
    def waiting(self, step: object | None) -> Iterator[None]:
        """A task of this step waits for others; None: the run itself, outside of any step."""
        self._waits[step] += 1
        self.changes += 1
        try:
            yield
        finally:
            self._waits[step] -= 1
            if not self._waits[step]:
                del self._waits[step]
            self.changes += 1

    @contextmanager
    def working(self) -> Iterator[None]:
        """Something is done or waited for that nothing on the log would bring back: a pause, a timeout."""
        self._working += 1
        self.changes += 1
        try:
            yield
        finally:
            self._working -= 1
            self.changes += 1

    # -- giving the run up ---------------------------------------------------------------------------

    @contextmanager
    def calling(self) -> Iterator[None]:
        """An effect is under way, from before its intent is on the log until its outcome is staged."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls and self._calls_ended is not None:
                self._calls_ended.set()

    @property
    def calls(self) -> int:
        """How many effects are under way."""
        return self._calls

    async def calls_ended(self) -> None:
        """Return when no effect is under way; call `shut` first, or others follow."""
        while self._calls:
            self._calls_ended = asyncio.Event()
            await self._calls_ended.wait()

    def shut(self) -> None:
        """The run is about to be given up: no step and no effect begins any more."""
        if self._gate is None:
            self._gate = asyncio.Event()

    def given_up(self) -> None:
        """Who waits in `may_begin` goes on, and finds the journal closed."""
        if self._gate is not None:
            self._gate.set()

    async def may_begin(self) -> None:
        """Return when a step or an effect may begin: at once, unless the run is about to be given up."""
        if self._gate is not None:
            await self._gate.wait()

    @property
    def only_waits(self) -> bool:
        """Whether nothing can happen before something comes from outside, or a deadline."""
        holding = set(self._steps.values())
        if self._working or not self._waits:
            return False
        return all(step in self._waits or step in holding for step in self._steps)
