"""A graph or an agent under test: a real worker on its own log, virtual time, scripts, crashes on demand.

async with Rehearsal(graph, effects={"refund": ["done"]}) as rehearsal:
    rehearsal.crash_after("kernel.node.completed", 2)
    run = await rehearsal.start({"order": 7})
    assert await run.result() == {"order": 7, "refund": "done"}
    assert rehearsal.call_count("refund") == 1
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from noesium_stream.agent import AnyGraph, BaseGraphicAgent, agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.client.views.approvals import Approval
from noesium_stream.clock import Clock
from noesium_stream.durations import Duration
from noesium_stream.errors import RehearsalError, RunTimeoutError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.llm import BaseLLMClient
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing.agents import provider_of, with_model
from noesium_stream.testing.cast import Cast
from noesium_stream.testing.clock import AutoClock
from noesium_stream.testing.mortal import When
from noesium_stream.testing.process import Process
from noesium_stream.testing.script import Answers, Call, Script
from noesium_stream.worker import Worker

PATIENCE_S: Final = 10.0
"""How long `RehearsedRun.result` lets a run wait for something from outside, in seconds of real time."""

LIMIT_S: Final = 100.0
"""How long it lets a run work; on a busy machine that may take longer than the patience above."""


class RehearsedRun(Run):
    """A run under test; if its worker fails, waiting for the run raises the worker's error."""

    def __init__(self, run: Run, process: Process) -> None:
        vars(self).update(vars(run))
        self._process = process

    async def result(self, timeout: Duration | None = None) -> Any:
        """As `Run.result`; `timeout` is in real time.

        Without a timeout the time is over after 10 seconds if the run waits for something from outside and
        nothing happens in it, after 100 if it works. The error then says what the run waits for. Also raises
        the error with which the worker ended.
        """
        waited_s, before = 0.0, -1
        while True:
            try:
                # In two halves: a process that stands still for longer than one does so in one of them.
                within = PATIENCE_S / 2 if timeout is None else timeout
                return await self._process.unless_it_fails(super().result(within))
            except RunTimeoutError as error:
                waits = [wait.shown for wait in (await self.info()).waits_for]
                written = len(await self.history())
                waited_s += PATIENCE_S / 2
                still = bool(waits) and written == before
                before = written
                if timeout is None and not still and waited_s < LIMIT_S:
                    continue
                message = error.message if timeout is not None else self._too_late(waited_s)
                hint = f"It waits for {'; '.join(waits)}." if waits else error.hint
                raise RunTimeoutError(message, hint=hint) from None

    def _too_late(self, waited_s: float) -> str:
        return f"Run {self.id} of {self.agent_type} has no outcome after {waited_s:g} s."

    async def history(self) -> list[EventEnvelope]:
        """The run's journal so far."""
        return [event async for event in self.events(follow=False)]

    async def wait_for(self, event_type: str, nth: int = 1) -> EventEnvelope:
        """Wait until the run's journal has its `nth` event of this type.

        Raises:
            RehearsalError: the run ended before that.
        """
        return await self._process.unless_it_fails(
            self._wait_for(_nth(event_type, nth), f"{nth}. {event_type}")
        )

    async def answer(self, value: Any = None, *, approved: bool = True, by: str | None = None) -> Approval:
        """Wait until the run has an open question, and answer the first one.

        Raises as `Run.approve`, and `RehearsalError` if the run ends without a question.

        Args:
            value: the requested value; None for a plain yes or no.
            approved: yes or no.
            by: the name of the person; default: the client's agent id.
        """
        while True:
            asked = await self.approvals()
            question = next((one for one in asked if one.status == "open"), None)
            if question is not None:
                say = self.approve if approved else self.reject
                return await say(question.approval_id, value=value, by=by)
            await self.wait_for("approval.requested", len(asked) + 1)

    async def _wait_for(self, when: When, what: str) -> EventEnvelope:
        async with aclosing(self.events()) as events:
            async for event in events:
                if when(event):
                    return event
        raise RehearsalError(f"Run {self.id} of {self.agent_type} ended without the {what}.")


class Rehearsal:
    """Runs a graph or an agent class on a log of its own; use it as an async context manager.

    Args:
        subject: a LangGraph graph (compiled or not), or an agent class.
        options: the agent's options; default: its defaults.
        model: answers all calls through a `JournaledLLM`; an agent class gets it as its `llm`.
        effects: by effect name, the results of its calls: answers in order, or a function of the call's
            arguments; an exception is a failure. Other effects and all compensations are performed.
        capabilities: by id, the results of capabilities that other agents would offer (version 1.0.0), in the
            same form; a function gets the input.
        clock: default: an `AutoClock`, so that timers take no time, and ids repeat.
        log: the log; by default a separate `memory://`.

    Attributes:
        clock: the given clock, or the default one.
        crashes: the number of killed workers.
    """

    def __init__(
        self,
        subject: AnyGraph | type[BaseGraphicAgent],
        *,
        options: Any = None,
        model: BaseLLMClient | None = None,
        effects: Mapping[str, Answers] | None = None,
        capabilities: Mapping[str, Answers] | None = None,
        clock: Clock | None = None,
        log: str = "memory://",
    ) -> None:
        agent = subject if isinstance(subject, type) else agent_from_graph(subject, max_supersteps=1_000)
        self._agent = agent if model is None else with_model(agent, model)
        self._options = options
        self._offered = _scripts("the capability", capabilities)
        self._cast = Cast(_scripts("the effect", effects), model)
        self.clock: Clock = clock or AutoClock()
        self._url = log
        self._stack = AsyncExitStack()
        self._process: Process | None = None
        self._client: Client | None = None

    async def __aenter__(self) -> Self:
        if isinstance(self.clock, AutoClock):
            self.clock.attach()
        async with AsyncExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="noesium-rehearsal-")))
            log = await open_log(self._url, clock=self.clock)
            stack.push_async_callback(log.close)
            if self._offered:
                provider = provider_of(self._offered)
                await stack.enter_async_context(
                    Worker(log, [provider], home=home / "provider", clock=self.clock)
                )
            self._client = await stack.enter_async_context(Client(log, clock=self.clock))
            process = Process(log, self.clock, self._cast, self._agent, self._options, home)
            self._process = process
            stack.push_async_callback(process.close)
            await process.start()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def log(self) -> EventLog:
        """The log of this rehearsal."""
        return self.client.log

    @property
    def client(self) -> Client:
        """A client of this log; its `list`, `run` and `start` reach every run."""
        if self._client is None:
            raise RehearsalError("Use the rehearsal as an async context manager.")
        return self._client

    @property
    def crashes(self) -> int:
        """The number of killed workers."""
        return self._running.deaths

    async def start(self, input: Mapping[str, Any] | None = None, **options: Any) -> RehearsedRun:
        """Start a run; options and errors are those of `Client.start`."""
        agent_type = self._agent.agent_type
        return RehearsedRun(await self.client.start(agent_type, dict(input or {}), **options), self._running)

    def call_count(self, name: str) -> int:
        """Number of executed calls of an effect or a scripted capability.

        Results that a replay reads from the log do not count.
        """
        return len(self.calls(name))

    def calls(self, name: str) -> list[Call]:
        """The calls of an effect or a scripted capability, in order."""
        script = self._offered.get(name)
        return script.calls if script is not None else self._cast.calls(name)

    # -- crashes ---------------------------------------------------------------------------------------

    def crash_after(self, event_type: str, nth: int = 1, *, restart: bool = True) -> None:
        """Kill the worker as soon as the `nth` event of this type from now on is on the log.

        Its commit is the worker's last one on the log. With `restart` another worker takes over at once,
        otherwise when `restart` is called. Only one crash can be armed at a time; arm the next after it.
        """
        self._running.arm(_nth(event_type, nth), reaches_log=True, restart=restart)

    def crash_before(self, event_type: str, nth: int = 1, *, restart: bool = True) -> None:
        """Kill the worker when it is about to commit the `nth` event of this type from now on.

        Nothing of that commit reaches the log; effects performed before it remain.
        """
        self._running.arm(_nth(event_type, nth), reaches_log=False, restart=restart)

    def crash_at(self, step: int, *, restart: bool = True) -> None:
        """Kill the worker after a node of this superstep (the first is 1) has run, before its commit."""
        self._running.arm(
            lambda event: event.event_type == "kernel.node.completed" and event.payload["step"] == step,
            reaches_log=False,
            restart=restart,
        )

    def crash_when(
        self, when: Callable[[EventEnvelope], bool], *, reaches_log: bool = False, restart: bool = True
    ) -> None:
        """Kill the worker before or after the commit of the first event that `when` selects."""
        self._running.arm(when, reaches_log=reaches_log, restart=restart)

    async def crash(self, *, restart: bool = True) -> None:
        """Kill the worker now."""
        await self._running.kill(restart=restart)

    async def wait_for_crash(self) -> None:
        """Wait until the worker is dead and, with `restart`, another one has taken over."""
        await self._running.wait_dead()

    async def restart(self) -> None:
        """Start a worker after a crash with `restart=False`.

        Raises:
            RehearsalError: the worker is alive.
        """
        await self._running.restart()

    @property
    def _running(self) -> Process:
        if self._process is None:
            raise RehearsalError("Use the rehearsal as an async context manager.")
        return self._process


def _scripts(kind: str, answers: Mapping[str, Answers] | None) -> dict[str, Script]:
    return {name: Script(f"{kind} {name}", found) for name, found in (answers or {}).items()}


def _nth(event_type: str, nth: int) -> When:
    if nth < 1:
        raise RehearsalError(f"There is no event number {nth}.", hint="Events are counted from 1.")
    left = nth

    def when(event: EventEnvelope) -> bool:
        nonlocal left
        if event.event_type != event_type:
            return False
        left -= 1
        return left == 0

    return when
