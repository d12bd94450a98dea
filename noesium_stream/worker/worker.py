"""Worker: runs agents in one process, with a consumer group per agent type and an owner per partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from noesium_stream.agent import AgentContext, BaseAgent, BaseGraphicAgent, BaseHandler
from noesium_stream.capabilities.configured_policy import configured_policy
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.config import load_config
from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.trust import own_key
from noesium_stream.worker.handler_host import HandlerHost
from noesium_stream.worker.health import Health
from noesium_stream.worker.host import Host
from noesium_stream.worker.ownership.grace import GRACE_S
from noesium_stream.worker.progress_lines import Lines
from noesium_stream.worker.run_host import RunHost
from noesium_stream.worker.runs.slots import CONCURRENCY, Slots
from noesium_stream.worker.state.known_runs import SEEN_COUNT, SEEN_S, Bounds
from noesium_stream.worker.watch.watcher import Watcher

AgentEntry = type[BaseAgent] | tuple[type[BaseAgent], BaseModel]
"""An agent class, or an agent class with its options."""


class Worker:
    """Runs agents on a log until it is closed.

    Args:
        log: an open log (it stays open), or a URL (the context manager opens and closes it); None takes the
            configured log.
        agents: agent classes, or pairs of a class and its options; new runs start with their graphs.
        home: folder for the agents' files on this machine; default: the configured one.
        progress: takes one line at a time, for people.
        clock: source of time and ids.
        runtime_id: name of the installation, in each event.
        llm_config: sampling and provider settings of the agents' models (see `AgentConfig`).
        grace: how long to wait for effects under way when a partition is given up.
        concurrency: most runs of each agent that work at the same time; runs that only wait do not count.
        seen_for: how long an ended run is known, so that a repeated command starts no second run.
        seen_count: most ended runs of a partition that are known.
        other_versions: further versions of these agents, older or newer: open runs that are pinned to one go
            on with it.
        keep_state: whether to keep the state of its partitions in files below `home` for the next start;
            None: only if the log is not in memory.
        on_approval: called with the `approval.requested` of each question that a run asks, once it is on the
            log; it must return at once (see `worker.approval_hook.ApprovalHook`).
        policy: who may ask what of these agents; None: the configured policy. Without one everybody may ask
            everything, but where signatures are required nobody may but operators.
        watch: whether it takes part in watching the health of all agents (see `worker.watch`), as
            `noesium worker` does.

    Use it as an async context manager; `wait` raises the error that ends it. It changes no settings of the
    process; see `tune_process` for those that the command line makes.
    """

    def __init__(
        self,
        log: EventLog | str | None,
        agents: Sequence[AgentEntry],
        *,
        home: Path | None = None,
        progress: Callable[[str], None] = lambda line: None,
        clock: Clock | None = None,
        runtime_id: str = "local",
        llm_config: Mapping[str, Any] | None = None,
        grace: Duration = GRACE_S,
        concurrency: int = CONCURRENCY,
        seen_for: Duration = SEEN_S,
        seen_count: int = SEEN_COUNT,
        other_versions: Sequence[AgentEntry] = (),
        keep_state: bool | None = None,
        policy: Policy | None = None,
        on_approval: Callable[[EventEnvelope], None] | None = None,
        watch: bool = False,
    ) -> None:
        self._clock = clock or SystemClock()
        made = partial(
            AgentContext,
            home=load_config().home if home is None else home,
            clock=self._clock,
            progress=Lines(progress, self._clock),
            llm_config=llm_config or {},
        )
        instance_id = self._instance_id = self._clock.uuid7()
        grace_s, bounds = in_seconds(grace, "grace"), Bounds(in_seconds(seen_for, "seen_for"), seen_count)

        def hosts(log: EventLog) -> list[Host]:
            on_log = partial(made, log=log, policy=policy or configured_policy(log))
            others: defaultdict[str, list[BaseAgent]] = defaultdict(list)
            for agent, options in map(_entry, other_versions):
                others[agent.agent_type].append(_make(agent, options, on_log, runtime_id, instance_id))
            found = [
                _host(
                    log,
                    _make(agent, options, on_log, runtime_id, instance_id),
                    others.pop(agent.agent_type, ()),
                    grace_s,
                    Slots(concurrency),
                    bounds,
                    not log.url.startswith("memory:") if keep_state is None else keep_state,
                    on_approval,
                )
                for agent, options in map(_entry, agents)
            ]
            if others:
                raise ConfigError(
                    f"Another version of {next(iter(others))} is of no use: the worker runs no such agent.",
                    hint="Give the agent that new runs begin with, too.",
                )
            return found

        self._hosts_on = hosts
        self._url = log if isinstance(log, str) else None
        self._opens = log is None or isinstance(log, str)
        self._own_log: EventLog | None = None
        self._log = None if log is None or isinstance(log, str) else log
        self._hosts = [] if log is None or isinstance(log, str) else hosts(log)
        self._watch = watch
        self._heartbeats: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            if self._opens:
                self._own_log = self._log = await open_log(self._url, clock=self._clock)
                self._hosts = self._hosts_on(self._own_log)
            if self._log is not None:
                await own_key(self._log)  # nobody would believe what it writes
            # All first: a run may call an agent of the same worker at once.
            for host in self._hosts:
                await host.announce()
            for host in self._hosts:
                await host.join()
        except BaseException:
            await self.close()
            raise
        self._heartbeats = [asyncio.create_task(host.heartbeat()) for host in self._hosts]
        if self._watch and self._hosts and self._log is not None:
            context = self._hosts[0].context
            watcher = Watcher(
                self._log,
                context.agent_ref,
                self._clock,
                policy=context.policy,
                progress=context.progress,
            )
            self._heartbeats.append(asyncio.create_task(watcher.run(), name="watch the agents' health"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def instance_id(self) -> str:
        """The id of this worker in its heartbeats and in the events that it writes."""
        return self._instance_id

    def health(self) -> Health:
        """Return whether the worker is ready, and the partitions that it works on."""
        return Health(
            [line for host in self._hosts for line in host.waits_for()],
            {host.agent_type: [status.partition for status in host.partitions()] for host in self._hosts},
        )

    def tenures(self) -> list[Any]:
        """Return the present tenures of the owned partitions, for tests and tools.

        They are `RunTenure` for agents with runs, and `HandlerTenure` for handlers.
        """
        return [tenure for host in self._hosts for tenure in host.tenures()]

    def leaving(self) -> dict[str, str]:
        """Return the activity of each closing agent, by agent type; agents that have closed are absent."""
        return {host.agent_type: host.leaving for host in self._hosts if host.leaving}

    async def wait(self) -> None:
        """Return when the worker is closed; raise the error that ended it before.

        It is an error of a partition's owner, of the log or of a heartbeat.
        """
        tasks = [asyncio.create_task(host.wait()) for host in self._hosts] + self._heartbeats
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """Stop in order: take no new work, end effects and commits under way, close writers, leave groups."""
        for task in self._heartbeats:
            task.cancel()
        await asyncio.gather(*self._heartbeats, return_exceptions=True)
        self._heartbeats = []
        # All together, so that they share the time that is left.
        closed = await asyncio.gather(*(host.close() for host in self._hosts), return_exceptions=True)
        if self._own_log is not None:
            await self._own_log.close()
            self._own_log = None
        for error in closed:
            if isinstance(error, BaseException):
                raise error


def _host(
    log: EventLog,
    agent: BaseAgent,
    also: Sequence[BaseAgent],
    grace_s: float,
    slots: Slots,
    bounds: Bounds,
    keeps_state: bool,
    on_approval: Callable[[EventEnvelope], None] | None,
) -> Host:
    graphic = [other for other in also if isinstance(other, BaseGraphicAgent)]
    if isinstance(agent, BaseGraphicAgent) and len(graphic) == len(also):
        return RunHost(
            log,
            agent,
            grace_s,
            slots,
            bounds,
            also=graphic,
            keeps_state=keeps_state,
            on_approval=on_approval,
        )
    if also:
        raise ConfigError(
            f"Of {agent.agent_type} a worker carries one version: not all that is given of it has a graph.",
            hint="Only runs of graphs are pinned to a version.",
        )
    if isinstance(agent, BaseHandler):
        return HandlerHost(log, agent)
    raise ConfigError(
        f"The agent {agent.agent_type} has nothing to do.",
        hint="Let it have a graph (BaseGraphicAgent), or handle events (BaseHandler).",
    )


def _entry(entry: AgentEntry) -> tuple[type[BaseAgent], BaseModel]:
    """Return an agent's class and options."""
    return (entry, entry.Options()) if isinstance(entry, type) else entry


def _make(
    agent: type[BaseAgent],
    options: BaseModel,
    made: Callable[..., AgentContext],
    runtime_id: str,
    instance_id: str,
) -> BaseAgent:
    reference = AgentRef(
        agent_id=agent.agent_type,
        agent_type=agent.agent_type,
        runtime_id=runtime_id,
        instance_id=instance_id,
    )
    return agent(options, made(agent_ref=reference))
