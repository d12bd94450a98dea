"""The run of the calling code: set once per execution of a graph, read by its wrapped nodes.

A compiled graph is wrapped once and executes many runs at a time; its nodes find theirs here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, Final, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph._internal._constants import CONFIG_KEY_READ

from noesium_stream.config import ExecutionMode
from noesium_stream.event.standard import CheckpointCreated
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.modes import MODE
from noesium_stream.kernel.reach import Reach
from noesium_stream.kernel.state.state_hash import Reader, StateHash
from noesium_stream.kernel.state.typed_json import building, encode

SHARE_S: Final = 0.01
"""How long a step may wait for others to share its commit."""

HOLD_S: Final = 0.002
"""How long a step that has to be on the log waits for what follows: its checkpoint, or the run's end."""

MAX_UNSETTLED: Final = 64
"""Largest number of steps that wait for the log at once."""

_RUN: ContextVar[RunContext | None] = ContextVar("noesium_run", default=None)


class Durability(StrEnum):
    """The moment at which a step is on the log.

    In every case the intent of an effect, a message to others, a question and the end of the run are on the
    log before anybody can see them, together with everything before them.

    SYNC: each step is on the log before the next one begins. A crash repeats at most the steps that were
        running.
    ASYNC: the next step does not wait for a step that caused no effect, call, question or message, whatever
        it computes or writes to memory. Such steps are sent to the log within 10 ms, and share a commit. A
        crash also repeats those of them that came after the last commit.
    EXIT: such steps are sent to the log with the next step that causes something, or with the end of the
        run. A crash repeats all of them since then. This takes the fewest commits, and nobody can watch the
        run meanwhile.
    """

    SYNC = "sync"
    ASYNC = "async"
    EXIT = "exit"


class Toolbox(Protocol):
    """The tools of an agent, for the steps of its runs."""

    async def call(self, place: Any, name: str, arguments: Mapping[str, Any]) -> Any:
        """Have the tool of this name called in the step of `place`; see `Step.tool`."""


class RunContext:
    """One execution of a graph for a run; `within`: the prefix of the task paths of a graph that undoes.

    Such a graph leaves no checkpoints: it is walked from its beginning. `reach` is what its code can name,
    `toolbox` has the tools that its steps may use. `before_step` is called with the number of a superstep
    before a node of it begins, and may raise to end the execution.
    """

    def __init__(
        self,
        journal: RunJournal,
        durability: Durability,
        mode: ExecutionMode,
        reach: Reach,
        within: str | None = None,
        *,
        state: StateHash | None = None,
        toolbox: Toolbox | None = None,
        before_step: Callable[[int], None] | None = None,
    ) -> None:
        self.journal = journal
        self.mode = mode
        self.reach = reach
        self.toolbox = toolbox
        self.within = within
        self.loop = asyncio.get_running_loop()
        self._durability = durability
        self._unsettled = 0
        self._owed = False
        self._timer: asyncio.TimerHandle | None = None
        self._current: int | None = None
        self._state = state
        self._read: Reader | None = None
        self._before_step = before_step

    def on_its_loop(self) -> bool:
        """Whether the caller runs in the run's event loop, which must not be blocked."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    def superstep(self, number: int, config: RunnableConfig | None = None) -> None:
        """Note that a node of this superstep begins: the superstep before it is complete."""
        before = self._current
        if number == before:
            return self._begins(number)
        self._current, self._read = number, (config or {}).get("configurable", {}).get(CONFIG_KEY_READ)
        # A node's body can run before the state is known.
        known = number in self.journal.history.checkpoints
        state_hash = None if known else self._hash(before)
        if before is not None and number > before:
            self._checkpoint(before, state_hash)
        return self._begins(number)

    def _begins(self, number: int) -> None:
        """Let the execution end before this superstep."""
        if self._before_step is not None:
            self._before_step(number)

    @property
    def reached_step(self) -> int:
        """The last complete superstep; 0: none."""
        return (self._current or 1) - 1

    def state(self) -> dict[str, Any]:
        """The state at the beginning of the running superstep, in its recorded form.

        Raises:
            StateError: a part of it cannot be recorded.
        """
        if self._state is None or self._read is None:
            return {}
        return {name: encode(value, name) for name, value in self._state.read(self._read).items()}

    def end(self) -> None:
        """Note that the graph has ended."""
        if self._current is not None:
            self._checkpoint(self._current, self._hash(self._current))

    async def reached(self, caused_nothing: bool) -> None:
        """Return when a complete and staged step is as safe as the run's durability promises.

        With SYNC a step that caused nothing is on its way within 2 ms, and `paid` waits for it before the
        next step begins: so it shares its commit with its checkpoint, and the last one with the run's end.

        Args:
            caused_nothing: whether the step caused no effect, call, question or message.
        """
        if not caused_nothing:
            return await self.settled()
        self._unsettled += 1
        if self._durability is Durability.SYNC:
            self._owed = True
            self._send_in(HOLD_S)
        elif self._durability is Durability.ASYNC:
            if self._unsettled >= MAX_UNSETTLED:
                return await self.settled()
            self._send_in(SHARE_S)
        return None

    async def paid(self) -> None:
        """Return when each step that has to be on the log before another one begins is there."""
        if self._owed:
            await self.settled()

    async def settled(self) -> None:
        """Return when all staged events are on the log."""
        self._unsettled, self._owed = 0, False
        self.stop()
        await self.journal.commit()

    def stop(self) -> None:
        """Send what has to be on the log, and nothing more automatically."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._owed:
            self.journal.flush()

    def _send_in(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(seconds, self._send)

    def _send(self) -> None:
        self._timer = None
        self.journal.flush()

    def _hash(self, number: int | None) -> str | None:
        """The hash of the state after superstep `number`."""
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
    """The run of the calling code; None outside a run."""
    return _RUN.get()


class running:
    """Make `run` the current one; a class, since a generator costs three times as much."""

    __slots__ = ("_building", "_mode", "_run", "_token")

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._building = building(run.reach.builds)

    def __enter__(self) -> None:
        """Set the current run."""
        self._building.__enter__()
        self._token = _RUN.set(self._run)
        self._mode = MODE.set(self._run.mode)

    def __exit__(self, *raised: object) -> None:
        """Restore the previous run."""
        MODE.reset(self._mode)
        _RUN.reset(self._token)
        self._building.__exit__()
