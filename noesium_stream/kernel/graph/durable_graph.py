"""A compiled LangGraph graph whose runs live on a journal (RFC-0003, RFC-1001 §7.1).

The graph is copied once per process, with every node's `bound` behind the journal (`durable_node.py`).
Subgraphs, both declared ones and those that node bodies call, get their nodes wrapped in place, which changes
nothing outside a run. An execution after a crash walks the same graph over recorded deltas to the point where
it stopped; a long run starts at a checkpoint that is folded from them (`resume.py`).

Decision record: LangGraph runs a node and its writers as a sequence. The sequence builds a callback manager
of its own and reports the node's beginning and end to it, with or without listeners: an eighth of the cost of
a run of two small nodes. All handlers and tracers are in the manager that the node receives, so the kernel
knows in advance whether there are listeners. Without listeners `UnwatchedNode` runs the node; with listeners,
and for streams of events, LangGraph's sequence runs.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from contextvars import copy_context
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Final, cast

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph._internal._config import DEFAULT_RECURSION_LIMIT
from langgraph.errors import GraphBubbleUp, GraphRecursionError
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.pregel._read import PregelNode
from langgraph.types import RetryPolicy

from noesium_stream.clock import derived_id
from noesium_stream.config import ExecutionMode
from noesium_stream.errors import CheckpointError, KernelError, NodeExecutionError
from noesium_stream.kernel.graph.durable_node import DurableNode
from noesium_stream.kernel.graph.goto_check import targets_of, watched
from noesium_stream.kernel.graph.named_input import NamedInput
from noesium_stream.kernel.graph.resume import (
    ResumePoint,
    ResumeSaver,
    WalkSaver,
    first_step,
    migrated_point,
    resume_point,
)
from noesium_stream.kernel.graph.segments import SegmentDueError, SegmentEnd, Segments
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.reach import Reach
from noesium_stream.kernel.run_context import Durability, RunContext, Toolbox, running
from noesium_stream.kernel.run_history import RunHistory
from noesium_stream.kernel.state.message_ids import identified, message_keys
from noesium_stream.kernel.state.state_hash import StateHash, state_channels
from noesium_stream.kernel.state.typed_json import building
from noesium_stream.kernel.strict.graph_check import require_strict

Graph = CompiledStateGraph[Any, Any, Any, Any]

_START: Final = "__start__"
_OF_THE_NODE: Final = ("run_name", "run_id")
"""Parts of a node's configuration that are about the node alone, not about the calls of its body."""
_END: Final = object()
WALK_STEPS: Final = 100
"""A run with fewer supersteps on the log is walked from its beginning, a longer one from a checkpoint."""


class DurableGraph:
    """Executes one graph for any number of runs.

    Args:
        graph: compiled, without a checkpointer; it stays unchanged.
        durability: when a step is on the log.
        mode: what the nodes may do (RFC-1001 §12.3).
        walk_steps: number of supersteps from which on a run resumes at a folded checkpoint.
        owner: the class of the agent whose graph it is.
        toolbox: the agent's tools, if it has some.

    Raises:
        GraphError: the graph cannot run in STRICT mode; it names every problem.
        KernelError: a subgraph has a checkpointer of its own.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        durability: Durability = Durability.ASYNC,
        mode: ExecutionMode = ExecutionMode.PRAGMATIC,
        walk_steps: int = WALK_STEPS,
        owner: type | None = None,
        toolbox: Toolbox | None = None,
    ) -> None:
        if mode is ExecutionMode.STRICT:
            require_strict(graph)
        self.graph = graph
        self.reach = Reach(graph, owner)
        self._messages = message_keys(graph)
        self._channels = state_channels(graph)
        self._mode = mode
        self._toolbox = toolbox
        self._durability = durability
        self._walk_steps = walk_steps
        self._wrapped = graph.copy(
            {
                "nodes": _wrap(graph, set(), self.reach.declared),
                "checkpointer": None,
                "cache": None,
                "interrupt_before_nodes": [],
                "interrupt_after_nodes": [],
                "retry_policy": (),
            }
        )

    async def execute(
        self,
        journal: RunJournal,
        initial_state: Any,
        config: RunnableConfig | None = None,
        segments: Segments | None = None,
    ) -> Any:
        """Run the graph on top of what the journal already holds; return the final state.

        With `segments` the run begins a new segment from time to time, and is executed from there as after a
        crash.

        Raises:
            NodeExecutionError: a node failed for good on an earlier execution, or the recursion limit is
                reached. An error that a node raises on this execution is raised unchanged; it is on the log.
            FencedError, CommitUnknownError: this process does not own the run any more.
        """
        end = None if segments is None else SegmentEnd(segments.steps)
        while True:
            run = self._context(journal, end)
            graph, given, settings, options = self._from_where(journal, initial_state, config)
            try:
                with running(run):
                    final = await _final(graph, given, settings, options)
            except SegmentDueError:
                pass  # what follows asks `end`: LangGraph may keep this from us
            except GraphRecursionError as error:
                raise _limit_reached(config) from error
            finally:
                run.stop()
            if segments is None or end is None or not end.due:
                break
            if await segments.begin(journal, initial_state):
                end = SegmentEnd(segments.steps)
            else:
                end.postpone(journal.history)
        run.end()
        return final

    def _context(self, journal: RunJournal, end: SegmentEnd | None) -> RunContext:
        return RunContext(
            journal,
            self._durability,
            self._mode,
            self.reach,
            state=StateHash(self._channels),
            toolbox=self._toolbox,
            before_step=None if end is None else partial(end.check, journal.history),
        )

    async def execute_within(
        self, journal: RunJournal, initial_state: Any, within: str, config: RunnableConfig | None = None
    ) -> Any:
        """As `execute`, for a graph that undoes a part of a run; its task paths begin with `within`."""
        run = RunContext(journal, self._durability, self._mode, self.reach, within, toolbox=self._toolbox)
        try:
            with running(run):
                return await self._wrapped.ainvoke(initial_state, config)
        except GraphRecursionError as error:
            raise _limit_reached(config) from error
        finally:
            run.stop()

    async def stream(
        self,
        journal: RunJournal,
        initial_state: Any,
        config: RunnableConfig | None = None,
        *,
        stream_mode: Any = "values",
    ) -> AsyncIterator[Any]:
        """As `execute`; yields what LangGraph's `astream` yields for this `stream_mode`."""
        run = RunContext(
            journal,
            self._durability,
            self._mode,
            self.reach,
            state=StateHash(self._channels),
            toolbox=self._toolbox,
        )
        graph, given, settings, options = self._from_where(journal, initial_state, config)
        stream: Any = graph.astream(given, settings, stream_mode=stream_mode, **options)
        async with aclosing(stream) as chunks:
            while True:
                # The run is current while the graph works, not while the caller looks at a chunk.
                try:
                    with running(run):
                        chunk = await anext(chunks, _END)
                except GraphRecursionError as error:
                    raise _limit_reached(config) from error
                if chunk is _END:
                    break
                yield chunk
            run.stop()
        run.end()

    async def walk(self, journal: RunJournal, initial_state: Any) -> ResumePoint:
        """Walk over the journal to its end: the checkpoint before the next new superstep.

        Args:
            journal: its `stage` raises LangGraph's `GraphBubbleUp` when a node would begin.
            initial_state: as for `execute`.

        Raises:
            Exception: the graph does not accept a recorded value.
        """
        run = RunContext(journal, self._durability, self._mode, self.reach)
        saver = WalkSaver(self._point(journal.history, self._identified(journal, initial_state)))
        given = None if saver.reached is not None else self._identified(journal, initial_state)
        config: RunnableConfig = {
            "recursion_limit": sys.maxsize // 2,
            "configurable": {"thread_id": journal.identity.run_id},
        }
        try:
            with running(run):
                await self._wrapped.copy({"checkpointer": saver}).ainvoke(given, config, durability="sync")
        except (GraphBubbleUp, NodeExecutionError):
            pass  # a node would begin, or fails again as recorded
        finally:
            run.stop()
        if saver.reached is None:
            raise CheckpointError("The graph does not take the run's input.")
        return saver.reached

    def _point(self, history: RunHistory, initial_state: Any) -> ResumePoint | None:
        """The checkpoint to resume from; None: walk from the beginning."""
        moved, first = history.migrated, first_step(history)
        walked = sum(step >= first for step in history.steps)
        with building(self.reach.builds):
            point = resume_point(self.graph, history, initial_state) if walked >= self._walk_steps else None
            if point is None and moved is not None:
                return migrated_point(self.graph, moved)
        return point

    def _identified(self, journal: RunJournal, initial_state: Any) -> Any:
        if not self._messages:
            return initial_state
        numbers = itertools.count()
        return identified(
            initial_state,
            self._messages,
            lambda: derived_id(journal.identity.run_id, "input", str(next(numbers))),
        )

    def _from_where(
        self, journal: RunJournal, initial_state: Any, given: RunnableConfig | None
    ) -> tuple[Graph, Any, RunnableConfig, dict[str, Any]]:
        history = journal.history
        initial_state = self._identified(journal, initial_state)
        config: RunnableConfig = {**(given or {})}
        point = self._point(history, initial_state)
        # LangGraph counts from the point of resumption; the run counts from its beginning.
        left = _limit(given) - point.step - 1 if point is not None else 0
        if point is None or (left <= 0 and history.migrated is None):
            return self._wrapped, initial_state, config, {}
        if point.step > _limit(given):
            raise _limit_reached(given)
        config["recursion_limit"] = max(left, 1)
        config["configurable"] = {
            **config.get("configurable", {}),
            "thread_id": journal.identity.run_id,
        }
        graph = self._wrapped.copy({"checkpointer": ResumeSaver(point)})
        return graph, None, config, {"durability": "exit"}


async def _final(graph: Graph, given: Any, config: RunnableConfig, options: dict[str, Any]) -> Any:
    """As `ainvoke`, which also streams the nodes' updates, for interrupts: no node here ends in one."""
    final = None
    stream: Any = graph.astream(
        given, config, stream_mode="values", output_keys=graph.output_channels, **options
    )
    async with aclosing(stream) as states:
        async for state in states:
            final = state
    return final


def _limit_reached(config: RunnableConfig | None) -> NodeExecutionError:
    return NodeExecutionError(
        f"The graph had not ended after {_limit(config):,} supersteps, its limit.",
        hint="Bound the loop, or raise the agent's max_supersteps.",
    )


def _limit(config: RunnableConfig | None) -> int:
    return (config or {}).get("recursion_limit", DEFAULT_RECURSION_LIMIT)


def _wrap(graph: Pregel[Any, Any, Any, Any], seen: set[int], declared: set[str]) -> dict[str, PregelNode]:
    """The graph's nodes behind the journal; adds the compensations that they name to `declared`."""
    seen.add(id(graph))
    keys = frozenset(
        name for name in graph.channels if not name.startswith(("__", "branch:", "join:"))
    ) | frozenset(getattr(getattr(graph, "builder", None), "managed", {}))
    known = keys if isinstance(graph, CompiledStateGraph) and keys else None
    targets = targets_of(graph)
    messages = message_keys(graph)
    wrapped = {}
    for name, node in graph.nodes.items():
        if name == _START:
            start: dict[str, Any] = {"writers": watched(node.writers, targets, name)}
            if messages:
                start["mapper"] = NamedInput(messages, node.mapper)
            wrapped[name] = node.copy(start)
            continue
        for inner in node.subgraphs:
            if id(inner) not in seen and isinstance(inner, Pregel):
                _wrap_in_place(inner, name, seen, declared)
        if isinstance(node.bound, DurableNode):
            declared.update(node.bound.compensations)
            wrapped[name] = node
            continue
        bound = DurableNode(
            name,
            node.bound,
            keys=known,
            retry=_policies(node.retry_policy) or _policies(graph.retry_policy),
            timeout_s=_run_timeout(node),
            ask_before=_listed(name, graph.interrupt_before_nodes),
            ask_after=_listed(name, graph.interrupt_after_nodes),
            handled=bool(getattr(node, "error_handler_node", None)),
            messages=messages,
            targets=targets,
        )
        declared.update(bound.compensations)
        durable = node.copy(
            {
                "bound": bound,
                "writers": watched(node.writers, targets, name),
                "retry_policy": (),
                "timeout": None,
            }
        )
        wrapped[name] = unwatched(durable)
    return wrapped


def _wrap_in_place(inner: Pregel[Any, Any, Any, Any], name: str, seen: set[int], declared: set[str]) -> None:
    if inner.checkpointer is True:
        raise KernelError(
            f"The subgraph of the node {name} has a checkpointer of its own (checkpointer=True).",
            hint="The run's journal takes its place: compile it without.",
        )
    inner.nodes = _wrap(inner, seen, declared)
    inner.interrupt_before_nodes, inner.interrupt_after_nodes, inner.retry_policy = [], [], ()


def _policies(given: Any) -> Sequence[RetryPolicy]:
    if not given:
        return ()
    return (given,) if isinstance(given, RetryPolicy) else tuple(given)


def _run_timeout(node: PregelNode) -> float | None:
    limit: Any = getattr(node.timeout, "run_timeout", None)
    return limit.total_seconds() if isinstance(limit, timedelta) else limit


def _listed(name: str, nodes: Any) -> bool:
    return nodes == "*" or name in (nodes or ())


class UnwatchedNode(Runnable[Any, Any]):
    """The executable of a node without listeners.

    Args:
        sequence: the body and the writers, as LangGraph combines them.
        bound: the body.
        writers: runnables that receive its value, one after the other.
    """

    def __init__(
        self, sequence: Runnable[Any, Any], bound: Runnable[Any, Any], writers: list[Runnable[Any, Any]]
    ) -> None:
        self.name = getattr(bound, "name", None)
        self._sequence = sequence
        self._bound = bound
        self._writers = writers

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Invoke LangGraph's sequence."""
        return self._sequence.invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the body in a task and a context of its own, then the writers."""
        if config is None or _is_watched(config):
            return await self._sequence.ainvoke(input, config, **kwargs)
        inner = cast(RunnableConfig, {key: value for key, value in config.items() if key not in _OF_THE_NODE})
        context = copy_context()
        context.run(var_child_runnable_config.set, inner)
        value = await asyncio.create_task(self._bound.ainvoke(input, inner, **kwargs), context=context)
        for writer in self._writers:
            value = await writer.ainvoke(value, inner)
        return value

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Stream LangGraph's sequence: there is a listener."""
        async for chunk in self._sequence.astream(input, config, **kwargs):
            yield chunk


def unwatched(node: PregelNode) -> PregelNode:
    """Change a node in place, where LangGraph allows its executable to be set, and return it."""
    sequence, writers = node.node, node.flat_writers
    if sequence is not None and writers and isinstance(vars(PregelNode).get("node"), cached_property):
        node.node = UnwatchedNode(sequence, node.bound, writers)
    return node


def _is_watched(config: RunnableConfig) -> bool:
    manager = config.get("callbacks")
    if not isinstance(manager, BaseCallbackManager):
        return True
    return bool(manager.handlers or manager.inheritable_handlers)
