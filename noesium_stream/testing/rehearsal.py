"""A graph or an agent under test: a real worker on its own log, time and others scripted, crashes on demand.

async with Rehearsal(graph, effects={"refund": ["done"]}) as rehearsal:
    rehearsal.crash_after("kernel.node.completed", 2)
    run = await rehearsal.start({"order": 7})
    assert await run.result() == {"order": 7, "refund": "done"}
    assert rehearsal.calls("refund") == 1
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from noesium_stream.agent import AnyGraph, BaseGraphicAgent, agent_of
from noesium_stream.client import Client, Run
from noesium_stream.client.approvals import Approval
from noesium_stream.clock import Clock
from noesium_stream.errors import RehearsalError
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
"""Of the machine's time: how long `RehearsedRun.result` waits where it is not told."""


class RehearsedRun(Run):
    """A run under test: what its worker ends with, ends who waits for it."""

    def __init__(self, run: Run, process: Process) -> None:
        vars(self).update(vars(run))
        self._process = process

    async def result(self, timeout: float | None = PATIENCE_S) -> Any:
        """See `Run.result`; `timeout` in seconds of the machine's time.

        Raises what the worker ended with, too.
        """
        return await self._process.unless_it_fails(super().result(timeout))

    async def history(self) -> list[EventEnvelope]:
        """The run's journal so far."""
        return [event async for event in self.events(follow=False)]

    async def until(self, event_type: str, nth: int = 1) -> EventEnvelope:
        """Wait until the run's journal has its `nth` event of this type.

        Raises:
            RehearsalError: the run ended without it.
        """
        return await self._process.unless_it_fails(self._until(_nth(event_type, nth), f"{nth}. {event_type}"))

    async def answer(self, value: Any = None, *, approved: bool = True, by: str | None = None) -> Approval:
        """Wait until the run has a question open, and answer the first such one.

        Args:
            value: what the question asks for; None: nothing beyond yes or no.
            approved: yes or no.
            by: who answers; default: the client's agent id.

        Raises as `Run.approve`, and `RehearsalError` if the run ends without asking.
        """
        while True:
            asked = await self.approvals()
            question = next((one for one in asked if one.status == "open"), None)
            if question is not None:
                say = self.approve if approved else self.reject
                return await say(question.approval_id, value=value, by=by)
            await self.until("approval.requested", len(asked) + 1)

    async def _until(self, when: When, what: str) -> EventEnvelope:
        async with aclosing(self.events()) as events:
            async for event in events:
                if when(event):
                    return event
        raise RehearsalError(f"Run {self.id} of {self.agent_type} ended without the {what}.")


class Rehearsal:
    """Runs a graph or an agent class on a log of its own; use it as an async context manager.

    Args:
        subject: a LangGraph graph (compiled or not), or an agent class.
        options: the agent's; default: those that it has without being told.
        model: answers everything that goes through a `JournaledLLM`; an agent class gets it as its `llm`.
        effects: per name of an effect, what its calls return: answers in order, or a function of the call's
            arguments; an exception is a failure. Effects that are not named here are performed, and so are
            compensations.
        capabilities: the same per id of a capability that other agents would offer (version 1.0.0); a
            function is given the input.
        clock: default: an `AutoClock`, so that timers take no time, and ids repeat.
        log: where; a `memory://` of its own by default.

    Attributes:
        clock: as given.
        crashes: how often the worker was killed.
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
        agent = subject if isinstance(subject, type) else agent_of(subject, max_supersteps=1_000)
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
                    Worker(log, [(provider, None)], home=home / "provider", clock=self.clock)
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
        """A client of it; its `list`, `run` and `start` reach every run."""
        if self._client is None:
            raise RehearsalError("Use the rehearsal as an async context manager.")
        return self._client

    @property
    def crashes(self) -> int:
        """How often the worker was killed."""
        return self._running.deaths

    async def start(self, input: Mapping[str, Any] | None = None, **options: Any) -> RehearsedRun:
        """Begin a run; options and errors as those of `Client.start`."""
        agent_type = self._agent.agent_type
        return RehearsedRun(await self.client.start(agent_type, dict(input or {}), **options), self._running)

    def calls(self, name: str) -> int:
        """How often an effect was performed, or a scripted capability asked for: what a replay reads from the
        log does not count.
        """
        return len(self.asked(name))

    def asked(self, name: str) -> list[Call]:
        """The calls of an effect or a scripted capability, in order."""
        script = self._offered.get(name)
        return script.calls if script is not None else self._cast.calls(name)

    # -- crashes ---------------------------------------------------------------------------------------

    def crash_after(self, event_type: str, nth: int = 1, *, restart: bool = True) -> None:
        """Kill the worker as soon as the `nth` event of this type from now on is on the log.

        Its commit is the last thing that the log has of that worker. With `restart` another one takes over at
        once, otherwise when `restart` is called. One crash is armed at a time; arm the next after it.
        """
        self._running.arm(_nth(event_type, nth), reaches_log=True, restart=restart)

    def crash_before(self, event_type: str, nth: int = 1, *, restart: bool = True) -> None:
        """Kill the worker when it is about to commit the `nth` event of this type from now on.

        Nothing of that commit is on the log; what was done before it is done.
        """
        self._running.arm(_nth(event_type, nth), reaches_log=False, restart=restart)

    def crash_at(self, step: int, *, restart: bool = True) -> None:
        """Kill the worker when a node of this superstep (the first is 1) has run and is not on the log."""
        self._running.arm(
            lambda event: event.event_type == "kernel.node.completed" and event.payload["step"] == step,
            reaches_log=False,
            restart=restart,
        )

    def crash_when(
        self, when: Callable[[EventEnvelope], bool], *, reaches_log: bool = False, restart: bool = True
    ) -> None:
        """Kill the worker at the commit of the first event that `when` picks, before it or after."""
        self._running.arm(when, reaches_log=reaches_log, restart=restart)

    async def crash(self, *, restart: bool = True) -> None:
        """Kill the worker now."""
        await self._running.kill(restart=restart)

    async def crashed(self) -> None:
        """Wait until the worker is dead and, where it is to be, another one has taken over."""
        await self._running.wait_dead()

    async def restart(self) -> None:
        """Start a worker after a crash with `restart=False`.

        Raises:
            RehearsalError: the worker lives.
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
