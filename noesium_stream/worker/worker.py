"""The process that runs agents: one consumer group per agent type, one owner per assigned partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from noesium_stream.agent import AgentContext, BaseAgent, BaseGraphicAgent, BaseHandler
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log.port import EventLog
from noesium_stream.worker.collector import NEW_OBJECTS, OF_HANDLERS, collect_less_often
from noesium_stream.worker.grace import GRACE_S
from noesium_stream.worker.handler_host import HandlerHost
from noesium_stream.worker.health import Health
from noesium_stream.worker.host import Host
from noesium_stream.worker.known_runs import Bounds
from noesium_stream.worker.run_host import RunHost
from noesium_stream.worker.slots import CONCURRENCY, Slots
from noesium_stream.worker.threads import make_room_for_threads, take_turns_sooner
from noesium_stream.worker.waiting_lines import Lines


class Worker:
    """Runs agents on a log until it is closed.

    Args:
        log: where their topics are; the worker does not close it.
        agents: agent classes with their options; new runs begin with their graphs.
        home: folder for what agents keep on this machine.
        progress: takes one line at a time, for people.
        clock: time and ids.
        runtime_id: which installation events say they come from.
        llm_config: how the agents' models sample, and more for their provider (see `AgentConfig`).
        grace_s: for how long effects that are under way are waited for when a partition is given up.
        concurrency: how many runs of each agent work at once; those that only wait do not count.
        bounds: for how long, and how many, ended runs are known, so that a command that comes again is no
            second run.
        also: other versions of these agents, older or newer: open runs that are pinned to one go on with it.
        keeps_state: whether what it knows of its partitions is kept in files below `home`, for next time;
            None: unless the log is in memory.

    Use it as an async context manager; `wait` raises what ends it.
    """

    def __init__(
        self,
        log: EventLog,
        agents: Sequence[tuple[type[BaseAgent], Any]],
        *,
        home: Path,
        progress: Callable[[str], None] = lambda line: None,
        clock: Clock | None = None,
        runtime_id: str = "local",
        llm_config: Mapping[str, Any] | None = None,
        grace_s: float = GRACE_S,
        concurrency: int = CONCURRENCY,
        bounds: Bounds | None = None,
        also: Sequence[tuple[type[BaseAgent], Any]] = (),
        keeps_state: bool | None = None,
    ) -> None:
        self._log = log
        self._clock = clock or SystemClock()
        instance_id = self._clock.uuid7()
        made = partial(
            AgentContext,
            home=home,
            log=log,
            clock=self._clock,
            progress=Lines(progress, self._clock),
            llm_config=llm_config or {},
        )
        others: defaultdict[str, list[BaseAgent]] = defaultdict(list)
        for agent, options in also:
            others[agent.agent_type].append(_make(agent, options, made, runtime_id, instance_id))
        self._hosts = [
            _host(
                log,
                _make(agent, options, made, runtime_id, instance_id),
                others.pop(agent.agent_type, ()),
                grace_s,
                Slots(concurrency),
                bounds or Bounds(),
                not log.url.startswith("memory:") if keeps_state is None else keeps_state,
            )
            for agent, options in agents
        ]
        if others:
            raise ConfigError(
                f"Another version of {next(iter(others))} is of no use: the worker runs no such agent.",
                hint="Give the agent that new runs begin with, too.",
            )
        self._heartbeats: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        make_room_for_threads()
        take_turns_sooner()
        handles = any(isinstance(host, HandlerHost) for host in self._hosts)
        collect_less_often(OF_HANDLERS if handles else NEW_OBJECTS)
        try:
            for host in self._hosts:
                await host.start()
        except BaseException:
            await self.close()
            raise
        self._heartbeats = [asyncio.create_task(host.heartbeat()) for host in self._hosts]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def health(self) -> Health:
        """Whether it is ready, and what it is at work on."""
        return Health(
            [line for host in self._hosts for line in host.waits_for()],
            {host.agent_type: [status.partition for status in host.partitions()] for host in self._hosts},
        )

    def leaving(self) -> dict[str, str]:
        """What each agent is doing that is closing, by agent type; of those that are done nothing."""
        return {host.agent_type: host.leaving for host in self._hosts if host.leaving}

    async def wait(self) -> None:
        """Return when the worker is closed; raise what ended it before.

        Raises what a partition's owner, the log or a heartbeat raised.
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
        """Stop in order: no new work, effects and commits that are under way end, writers close, the group
        hears of it at once.
        """
        for task in self._heartbeats:
            task.cancel()
        await asyncio.gather(*self._heartbeats, return_exceptions=True)
        self._heartbeats = []
        # All at once: they share the time that there is.
        closed = await asyncio.gather(*(host.close() for host in self._hosts), return_exceptions=True)
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
) -> Host:
    graphic = [other for other in also if isinstance(other, BaseGraphicAgent)]
    if isinstance(agent, BaseGraphicAgent) and len(graphic) == len(also):
        return RunHost(log, agent, grace_s, slots, bounds, also=graphic, keeps_state=keeps_state)
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


def _make(
    agent: type[BaseAgent],
    options: Any,
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
    return agent(options if options is not None else agent.Options(), made(agent_ref=reference))
