"""Runs a LangGraph graph on a run's journal (RFC-0003, RFC-1001 §7.1).

Every node is wrapped at its `bound`. On entry the wrapper looks for the node's `kernel.node.completed`
on the log and returns the recorded delta without running the body; otherwise it runs it and returns
after entered, events and completed are committed, together. So an execution after a crash walks the
same graph over recorded deltas to where it was, and goes on.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp, GraphRecursionError
from langgraph.graph.state import CompiledStateGraph

from noesium_stream.errors import (
    CommitUnknownError,
    FencedError,
    KernelError,
    LogClosedError,
    NodeExecutionError,
    NoesiumError,
    brief,
)
from noesium_stream.event.standard import GraphRef, NodeCompleted, NodeFailed
from noesium_stream.kernel.decorators import NodeMeta, node_meta
from noesium_stream.kernel.history import StepKey
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.step import Step
from noesium_stream.kernel.values import record, restore, take_events

_START = "__start__"

NO_LONGER_OWNER = (FencedError, CommitUnknownError, LogClosedError)
"""After these a run is not this process's to speak for: nothing is recorded, the next owner goes on."""


class KernelExecutor:
    """Executes one graph for one run."""

    def __init__(self, graph: CompiledStateGraph[Any, Any, Any, Any], journal: RunJournal) -> None:
        nodes = {
            name: node if name == _START else node.copy({"bound": _Node(name, node.bound, journal)})
            for name, node in graph.nodes.items()
        }
        self._graph = graph.copy({"nodes": nodes, "checkpointer": None, "cache": None})
        self._run_id = journal.identity.run_id

    async def execute(self, initial_state: dict[str, Any], config: RunnableConfig | None = None) -> Any:
        """Run the graph from the start, over whatever the journal already holds; return the final state.

        Raises:
            NodeExecutionError: a node failed; it and the reason are on the log.
            FencedError, CommitUnknownError: this process does not own the run any more.
        """
        try:
            return await self._graph.ainvoke(initial_state, config)
        except NoesiumError:
            raise
        except GraphRecursionError as error:
            raise NodeExecutionError(
                f"run {self._run_id}: {error}", hint="Bound the loop, or raise the agent's max_supersteps."
            ) from error


class _Node(Runnable[Any, Any]):
    """A node's body behind the journal."""

    def __init__(self, name: str, bound: Runnable[Any, Any], journal: RunJournal) -> None:
        self.name = name
        self._bound = bound
        self._journal = journal
        self._meta: NodeMeta = node_meta(bound)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Refuse: the kernel is asynchronous."""
        raise KernelError("A graph under the kernel runs with ainvoke only.")

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the recorded delta, or run the body and record it."""
        key = _step_key(config)
        done = self._journal.history.completed.get(key)
        if done is not None:
            # It may be staged only: then this is a retry after a commit that was refused, and raises again.
            await self._journal.commit()
            return restore(done.payload["delta"])
        attempt = self._journal.history.failures[key] + 1
        step = Step(self._journal, str(self.name), key, self._meta, attempt)
        begun = self._journal.clock.monotonic()
        token = step.activate()
        try:
            value = await self._bound.ainvoke(input, config, **kwargs)
            delta = self._complete(step, value, attempt, begun)
        except (GraphBubbleUp, *NO_LONGER_OWNER):
            raise
        except Exception as error:
            await self._fail(step, error, attempt, begun)
            raise
        finally:
            step.deactivate(token)
        await self._journal.commit()
        return restore(delta)

    def _complete(self, step: Step, value: Any, attempt: int, begun: float) -> Any:
        value, events = take_events(value)
        delta = record(value)
        step.check_complete()
        savepoint = self._journal.savepoint()
        try:
            step.stage_events(events)
        except Exception:
            self._journal.rollback(savepoint)  # all of a node's events or none
            raise
        clock = self._journal.clock
        completed = NodeCompleted(
            run_id=step.run_id,
            node=step.node,
            step=step.key[0],
            task_path=step.key[1],
            attempt=attempt,
            delta=delta,
            duration_ms=_elapsed(clock.monotonic() - begun),
        )
        trace = self._journal.identity.trace.child(clock.token(8))
        key = "/".join((step.run_id, str(step.key[0]), step.key[1], "completed"))
        self._journal.stage(completed, trace=trace, causation_id=step.entered_id, idempotency_key=key)
        return delta

    async def _fail(self, step: Step, error: Exception, attempt: int, begun: float) -> None:
        clock = self._journal.clock
        failed = NodeFailed(
            run_id=step.run_id,
            node=step.node,
            step=step.key[0],
            task_path=step.key[1],
            attempt=attempt,
            error_type=type(error).__name__,
            message=brief(error),
            duration_ms=_elapsed(clock.monotonic() - begun),
        )
        trace = self._journal.identity.trace.child(clock.token(8))
        self._journal.stage(failed, trace=trace, causation_id=step.entered_id)
        await self._journal.commit()


def graph_ref(graph: CompiledStateGraph[Any, Any, Any, Any], graph_id: str, version: str) -> GraphRef:
    """What a run is pinned to: the fingerprint covers the graph's nodes, edges and channels."""
    drawn = graph.get_graph()
    shape = {
        "nodes": sorted(drawn.nodes),
        "edges": sorted([edge.source, edge.target, str(edge.data), edge.conditional] for edge in drawn.edges),
        "channels": sorted((name, type(channel).__name__) for name, channel in graph.channels.items()),
    }
    digest = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()
    return GraphRef(graph_id=graph_id, version=version, fingerprint=digest[:32])


def _step_key(config: RunnableConfig | None) -> StepKey:
    metadata = (config or {}).get("metadata", {})
    return int(metadata["langgraph_step"]), task_path(metadata["langgraph_path"])


def task_path(path: Any) -> str:
    """LangGraph's task path as a text that is the same in every process: `pull:weigh`, `push:0`."""
    if isinstance(path, tuple | list):
        parts = [task_path(part) for part in path if not isinstance(part, bool)]
        return ":".join(part.removeprefix("__pregel_") for part in parts)
    return str(path)


def _elapsed(seconds: float) -> int:
    return max(0, round(seconds * 1000))
