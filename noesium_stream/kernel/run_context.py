"""Which run the code runs in: set once per execution of a graph, seen by its wrapped nodes.

A compiled graph is wrapped once and executes many runs at a time; its nodes find theirs here.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar
from enum import StrEnum
from typing import Any, Final

from langchain_core.runnables import RunnableConfig

from noesium_stream.config import ExecutionMode
from noesium_stream.event.standard import CheckpointCreated
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.modes import in_mode
from noesium_stream.kernel.state_hash import Reader, StateHash, state_reader
from noesium_stream.kernel.typed import encode

SHARE_S: Final = 0.01
"""How long a step may wait for others to share its commit with."""

MAX_UNSETTLED: Final = 64
"""How many steps may wait for the log at once."""

_RUN: ContextVar[RunContext | None] = ContextVar("noesium_run", default=None)


class Durability(StrEnum):
    """When a step is on the log. Whatever is chosen: a step's intent to do something outside, what it sends
    to others, a question and the end of the run are on the log before anybody can see them, and together
    with everything before them.

    SYNC: every step, before the next one begins. A crash repeats at most the steps that were running.
    ASYNC: as SYNC, but nobody waits for a step that touches nothing outside, being declared deterministic
        or of code that only computes (`plain_code`): it goes to the log within 10 ms, and shares its commit
        with those that come meanwhile. A crash may repeat the last few of these.
    EXIT: steps are kept back until something outside depends on them, or the run ends. A crash repeats all
        since then. The fewest commits, and nobody can watch the run meanwhile.
    """

    SYNC = "sync"
    ASYNC = "async"
    EXIT = "exit"


class RunContext:
    """One execution of a graph for a run; `within`: a graph that undoes, and what its task paths begin with.

    Such a graph leaves no checkpoints: it is walked from its beginning.
    """

    def __init__(
        self,
        journal: RunJournal,
        durability: Durability,
        mode: ExecutionMode,
        within: str | None = None,
        *,
        state: StateHash | None = None,
    ) -> None:
        self.journal = journal
        self.mode = mode
        self.within = within
        self.loop = asyncio.get_running_loop()
        self._durability = durability
        self._unsettled = 0
        self._timer: asyncio.TimerHandle | None = None
        self._current: int | None = None
        self._state = state
        self._read: Reader | None = None

    def on_its_loop(self) -> bool:
        """Whether the caller runs in the run's event loop, which must not be blocked."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    def superstep(self, number: int, config: RunnableConfig | None = None) -> None:
        """A node of this superstep begins: the superstep before it is complete."""
        before = self._current
        if number == before:
            return
        self._current, self._read = number, state_reader(config)
        # Nothing has to be known of the state before a node's body can run.
        known = number in self.journal.history.checkpoints
        state_hash = None if known else self._hash(before)
        if before is not None and number > before:
            self._checkpoint(before, state_hash)

    @property
    def reached_step(self) -> int:
        """The last superstep that is complete; 0: none is."""
        return (self._current or 1) - 1

    def state(self) -> dict[str, Any]:
        """The state that the superstep which runs began with, in its recorded form.

        Raises:
            StateError: a part of it cannot be recorded.
        """
        if self._state is None or self._read is None:
            return {}
        return {name: encode(value, name) for name, value in self._state.read(self._read).items()}

    def end(self) -> None:
        """The graph has ended."""
        if self._current is not None:
            self._checkpoint(self._current, self._hash(self._current))

    async def reached(self, pure: bool) -> None:
        """A step is complete and staged; return when that is as safe as the run's durability says."""
        if self._durability is Durability.SYNC or not pure:
            return await self.settled()
        self._unsettled += 1
        if self._durability is Durability.ASYNC:
            if self._unsettled >= MAX_UNSETTLED:
                return await self.settled()
            if self._timer is None:
                self._timer = self.loop.call_later(SHARE_S, self._send)
        return None

    async def settled(self) -> None:
        """Return when all that was staged is on the log."""
        self._unsettled = 0
        self.stop()
        await self.journal.commit()

    def stop(self) -> None:
        """Nothing is sent by itself any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self) -> None:
        self._timer = None
        self.journal.flush()

    def _hash(self, number: int | None) -> str | None:
        """The hash of the state, which superstep `number` has come to."""
        if self._state is None or self._read is None:
            return None
        return self._state.take(self._read, self.journal.history.steps.get(number or 0, ()))

    def _checkpoint(self, number: int, state_hash: str | None) -> None:
        journal, history = self.journal, self.journal.history
        if number in history.checkpoints or self.within is not None:
            return
        run_id = journal.identity.run_id
        done = history.steps.get(number, [])
        created = CheckpointCreated(
            run_id=run_id,
            checkpoint_id=f"{run_id}/{number}",
            parent_id=history.last_checkpoint,
            step=number,
            nodes=sorted({event.payload["node"] for event in done}),
            state_hash=state_hash,
        )
        cause = done[-1].event_id if done else history.last_event_id
        trace = journal.identity.trace.child(journal.clock.token(8))
        key = f"{run_id}/{number}/checkpoint"
        journal.stage(created, trace=trace, causation_id=cause, idempotency_key=key)


def current_run() -> RunContext | None:
    """The run that the calling code belongs to; None outside."""
    return _RUN.get()


def run_of(context: Context) -> RunContext | None:
    """The run that code in this context belongs to; None: to none."""
    return context.get(_RUN)


class running:
    """Make `run` the current one; a class, since a generator costs three times as much."""

    __slots__ = ("_mode", "_run", "_token")

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._mode = in_mode(run.mode)

    def __enter__(self) -> None:
        """It is the current one from here on."""
        self._token = _RUN.set(self._run)
        self._mode.__enter__()

    def __exit__(self, *raised: object) -> None:
        """The one before is current again."""
        self._mode.__exit__()
        _RUN.reset(self._token)
