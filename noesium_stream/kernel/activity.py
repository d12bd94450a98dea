"""Activity of a run in this process: whether a step works, or all of them wait on the log."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from noesium_stream.event.standard import EffectFailed, EffectReported


class Heir(Protocol):
    """The receiver of calls that a run leaves under way in this process."""

    def keep(self, call: asyncio.Task[Any]) -> None:
        """Hold a reference to a call that continues."""

    def report(self, event: EffectReported) -> None:
        """Report a call's outcome to the run's next owner."""


class Activity:
    """The open steps of a run, and which of them wait on the log.

    A step waits while one of its tasks is in `RunJournal.until` (for an answer, a signal, a timer). Its other
    tasks do not count meanwhile, unless one is an effect.

    Attributes:
        changes: a counter of events: the same number later means that nothing happened.
        begun: the effects that were begun here, in this stay of the run.
        uncalled: outcomes of effects whose intent may be on the log and whose call never begins, by effect
            id.
        heir: receives calls that end after the run was given up; None: the run was not given up, or nobody
            receives them.
        assured: returns when it is known, as of this moment, that this process still owns the run; raises if
            it does not. None: no other process could own it.
        owned: whether ownership is known without asking; may be called from any thread.
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
        "uncalled",
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
        self.uncalled: dict[str, EffectFailed] = {}
        self.heir: Heir | None = None
        self.assured: Callable[[], Awaitable[None]] | None = None
        self.owned: Callable[[], bool] = lambda: True

    def enter(self, step: object, within: object | None) -> None:
        """Note that a step begins, perhaps within another step's node (a subgraph)."""
        self._steps[step] = within
        self.changes += 1

    def leave(self, step: object) -> None:
        """Note that a step ends, with or without success."""
        self._steps.pop(step, None)
        self.changes += 1

    @contextmanager
    def waiting(self, step: object | None) -> Iterator[None]:
        """Count a task of this step as waiting until `wake`; None: the run itself, outside of any step."""
        waits = self._waits
        waits[step] += 1
        self.changes += 1
        try:
            yield
        finally:
            waits[step] -= 1
            if not waits[step]:
                del waits[step]
            self.changes += 1

    def wake(self) -> None:
        """Count no task as waiting until it waits again: all of them are about to look for new records."""
        self._waits = defaultdict(int)
        self.changes += 1

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count a running timeout that no record would wake."""
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
        """Count an effect as under way, from before its intent is on the log until its outcome is staged."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls and self._calls_ended is not None:
                self._calls_ended.set()

    @property
    def calls(self) -> int:
        """The number of effects under way."""
        return self._calls

    async def calls_ended(self) -> None:
        """Return when no effect is under way; call `shut` first, or others follow."""
        while self._calls:
            self._calls_ended = asyncio.Event()
            await self._calls_ended.wait()

    def shut(self) -> None:
        """Prepare to give the run up: no step and no effect begins any more."""
        if self._gate is None:
            self._gate = asyncio.Event()

    def given_up(self) -> None:
        """Wake the tasks that wait in `may_begin`; they find the journal closed."""
        if self._gate is not None:
            self._gate.set()

    async def may_begin(self) -> None:
        """Return when a step or an effect may begin: at once, unless the run is about to be given up."""
        if self._gate is not None:
            await self._gate.wait()

    @property
    def only_waits(self) -> bool:
        """Whether each open step waits on the log, or contains steps that do."""
        containing = set(self._steps.values())
        if self._working or not self._waits:
            return False
        return all(step in self._waits or step in containing for step in self._steps)
