"""`KernelExecutor`: executes a LangGraph graph as durable runs, from one program (RFC-1001 §7.1).

The graph becomes an agent like any other. Its runs are on the agent's topics, are resumed by the next process
that executes the same graph on the same log, and can be answered from any process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from noesium_stream.agent import AnyGraph, agent_from_graph
from noesium_stream.agent.base import BaseGraphicAgent
from noesium_stream.client.client import Client
from noesium_stream.client.operate.result_or_stranded import StrandedRuns, result_of
from noesium_stream.client.run import Run
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.config import ExecutionMode, load_config
from noesium_stream.durations import Duration
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.kernel import Durability
from noesium_stream.kernel.migration.migration import Migration
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker


class KernelExecutor:
    """Executes one graph on a log, with a worker in this process.

    Args:
        graph: a LangGraph graph, compiled or not; it stays as it is.
        log: an open log (it stays open), a URL, or None for the configured one.
        agent_ref: permanent agent type of the graph's runs, or an `AgentRef` with that type.
        version: semantic version of the graph; runs are pinned to it and to the graph's shape.
        durability: when a step is on the log.
        execution_mode: what nodes may do.
        max_supersteps: LangGraph's `recursion_limit`.
        events: the graph's own event types.
        migrations: older versions of the graph, oldest first, whose open runs are moved to this one.
        home: folder for files on this machine; default: the configured one.
        clock: source of time and ids.

    Use it as an async context manager; entering it resumes the open runs.
    """

    def __init__(
        self,
        graph: AnyGraph,
        log: EventLog | str | None,
        agent_ref: AgentRef | str,
        *,
        version: str = "1.0.0",
        durability: Durability = Durability.ASYNC,
        execution_mode: ExecutionMode = ExecutionMode.PRAGMATIC,
        max_supersteps: int = BaseGraphicAgent.max_supersteps,
        events: tuple[type[DomainEvent], ...] = (),
        migrations: Sequence[Migration] = (),
        home: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._agent = agent_from_graph(
            graph,
            agent_ref if isinstance(agent_ref, str) else agent_ref.agent_type,
            version=version,
            durability=durability,
            execution_mode=execution_mode,
            max_supersteps=max_supersteps,
            events=events,
            migrations=migrations,
        )
        self._given = log
        self._home = home
        self._clock = clock
        self._stack = AsyncExitStack()
        self._client: Client | None = None
        self._ended: asyncio.Task[None] | None = None
        self._left = StrandedRuns()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            log = self._given
            if log is None or isinstance(log, str):
                log = await open_log(log, clock=self._clock)
                stack.push_async_callback(log.close)
            home = self._home or load_config().home
            left = StrandedRuns()
            worker = Worker(log, [self._agent], home=home, clock=self._clock, progress=left.hear)
            await stack.enter_async_context(worker)
            self._ended = asyncio.create_task(worker.wait())
            stack.push_async_callback(_cancel, self._ended)
            self._left = left
            self._client = await stack.enter_async_context(Client(log, clock=self._clock))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client = None
        await self._stack.aclose()

    @property
    def client(self) -> Client:
        """The client that starts the runs; only inside the context manager."""
        if self._client is None:
            raise RuntimeError("use the executor as an async context manager")
        return self._client

    async def start(self, initial_state: Mapping[str, Any], *, idempotency_key: str | None = None) -> Run:
        """Start a run and return its handle.

        Raises:
            ConfigError: the state is not valid for the graph: an unknown key, or a value that the graph's
                model refuses.
            StateError: the state has no JSON form.
        """
        self._agent.check_input(dict(initial_state))
        return await self.client.start(self._agent.agent_type, initial_state, idempotency_key=idempotency_key)

    async def execute(
        self,
        initial_state: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Start a run and return its final state, as JSON types.

        Raises:
            ConfigError, StateError: as `start`.
            InputDiffersError: the run of this idempotency key has another input.
            RunFailedError, RunCancelledError: the run ended without a result.
            RunStrandedError: its worker cannot go on with it; the error says why.
            RunTimeoutError: the run has not ended after `timeout`; it goes on.
            NoesiumError: the error that ended the worker, such as a `ConfigError` of a migration that names
                an unknown node.
        """
        run = await self.start(initial_state, idempotency_key=idempotency_key)
        if idempotency_key is not None:
            await run.check_input(initial_state)
        return await self._result(run, timeout)

    async def resume(self, run_id: str, *, timeout: Duration | None = None) -> Any:
        """Resume a run that was started before, here or elsewhere, and return its final state.

        If the run has ended, return its result again.

        Raises:
            RunNotFoundError: there is no such run.
            RunFailedError, RunCancelledError, RunStrandedError, RunTimeoutError, NoesiumError: as `execute`.
        """
        return await self._result(await self.client.get_run(run_id), timeout)

    async def _result(self, run: Run, timeout: Duration | None) -> Any:
        if self._ended is None:
            raise RuntimeError("use the executor as an async context manager")
        return await result_of(run, self._left, self._ended, self._clock or SystemClock(), timeout)

    async def stream(
        self, initial_state: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> AsyncIterator[EventEnvelope]:
        """Start a run and yield its events as they reach the log, until it ends."""
        run = await self.start(initial_state, idempotency_key=idempotency_key)
        async for event in run.events():
            yield event


async def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task and ignore its outcome."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
