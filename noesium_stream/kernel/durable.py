"""A compiled LangGraph graph whose runs live on a journal (RFC-0003, RFC-1001 §7.1).

The graph is copied with every node's `bound` behind the journal (`node.py`), once per process; subgraphs,
declared ones and those that node bodies call, have their nodes wrapped in place, which changes nothing
outside a run. An execution after a crash walks the same graph over recorded deltas to where it was; a long
run starts at a checkpoint that is folded from them (`resume.py`).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from datetime import timedelta
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph._internal._config import DEFAULT_RECURSION_LIMIT
from langgraph.errors import GraphBubbleUp, GraphRecursionError
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.pregel._read import PregelNode
from langgraph.types import RetryPolicy

from noesium_stream.clock import derived_id
from noesium_stream.config import ExecutionMode
from noesium_stream.errors import CheckpointError, KernelError, NodeExecutionError
from noesium_stream.kernel.graph_check import require_strict
from noesium_stream.kernel.history import RunHistory
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.messages import identified, message_keys
from noesium_stream.kernel.node import DurableNode
from noesium_stream.kernel.resume import ResumePoint, ResumeSaver, WalkSaver, migrated_point, resume_point
from noesium_stream.kernel.run_context import Durability, RunContext, running
from noesium_stream.kernel.state_hash import StateHash, state_channels
from noesium_stream.kernel.targets import targets_of, watched
from noesium_stream.kernel.unwatched import unwatched

Graph = CompiledStateGraph[Any, Any, Any, Any]

_START: Final = "__start__"
_END: Final = object()
WALK_STEPS: Final = 100
"""A run with fewer supersteps on the log is walked from its beginning, a longer one from a checkpoint."""


class DurableGraph:
    """Executes one graph for any number of runs.

    Args:
        graph: compiled, without a checkpointer; it stays as it is.
        durability: when a step is on the log.
        mode: what the nodes may do (RFC-1001 §12.3).
        walk_steps: from how many supersteps on a run is resumed at a folded checkpoint.

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
    ) -> None:
        if mode is ExecutionMode.STRICT:
            require_strict(graph)
        self.graph = graph
        self._messages = message_keys(graph)
        self._channels = state_channels(graph)
        self._mode = mode
        self._durability = durability
        self._walk_steps = walk_steps
        self._wrapped = graph.copy(
            {
                "nodes": _wrap(graph, set()),
                "checkpointer": None,
                "cache": None,
                "interrupt_before_nodes": [],
                "interrupt_after_nodes": [],
                "retry_policy": (),
            }
        )

    async def execute(
        self, journal: RunJournal, initial_state: Any, config: RunnableConfig | None = None
    ) -> Any:
        """Run the graph over whatever the journal already holds; return the final state.

        Raises:
            NodeExecutionError: a node failed for good on an earlier execution, or the recursion limit is
                reached. What a node raises on this one is raised as it is; it is on the log.
            FencedError, CommitUnknownError: this process does not own the run any more.
        """
        run = RunContext(journal, self._durability, self._mode, state=StateHash(self._channels))
        graph, given, settings, options = self._from_where(journal, initial_state, config)
        try:
            with running(run), _clear_errors(journal, config):
                final = await _final(graph, given, settings, options)
        finally:
            run.stop()
        run.end()
        return final

    async def execute_within(
        self, journal: RunJournal, initial_state: Any, within: str, config: RunnableConfig | None = None
    ) -> Any:
        """As `execute`, for a graph that undoes a part of a run; its task paths begin with `within`."""
        run = RunContext(journal, self._durability, self._mode, within)
        try:
            with running(run), _clear_errors(journal, config):
                return await self._wrapped.ainvoke(initial_state, config)
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
        run = RunContext(journal, self._durability, self._mode, state=StateHash(self._channels))
        graph, given, settings, options = self._from_where(journal, initial_state, config)
        stream: Any = graph.astream(given, settings, stream_mode=stream_mode, **options)
        async with aclosing(stream) as chunks:
            while True:
                # The run is current while the graph works, not while the caller looks at a chunk.
                with running(run), _clear_errors(journal, config):
                    chunk = await anext(chunks, _END)
                if chunk is _END:
                    break
                yield chunk
            run.stop()
        run.end()

    async def walk(self, journal: RunJournal, initial_state: Any) -> ResumePoint:
        """Walk over what the journal holds to where it ends: the checkpoint before the next new superstep.

        Args:
            journal: its `stage` raises LangGraph's `GraphBubbleUp` when a node would begin.
            initial_state: as for `execute`.

        Raises:
            Exception: the graph cannot take what is recorded.
        """
        run = RunContext(journal, self._durability, self._mode)
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
            pass  # a node would begin, or fails once more as recorded
        finally:
            run.stop()
        if saver.reached is None:
            raise CheckpointError("The graph does not take the run's input.")
        return saver.reached

    def _point(self, history: RunHistory, initial_state: Any) -> ResumePoint | None:
        """Where to resume; None: walk from the beginning."""
        moved = history.migrated
        walked = len(history.steps) - (0 if moved is None else moved.payload["step"] - 1)
        point = resume_point(self.graph, history, initial_state) if walked >= self._walk_steps else None
        if point is None and moved is not None:
            return migrated_point(self.graph, moved)
        return point

    def _identified(self, journal: RunJournal, initial_state: Any) -> Any:
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
        # LangGraph counts anew from where it resumes; the run counts from its beginning.
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


@contextmanager
def _clear_errors(journal: RunJournal, config: RunnableConfig | None) -> Iterator[None]:
    try:
        yield
    except GraphRecursionError as error:
        raise _limit_reached(config) from error


async def _final(graph: Graph, given: Any, config: RunnableConfig, options: dict[str, Any]) -> Any:
    """As `ainvoke`, which has the nodes' updates told as well, for interrupts: no node here ends in one."""
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


def _wrap(graph: Pregel[Any, Any, Any, Any], seen: set[int]) -> dict[str, PregelNode]:
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
            wrapped[name] = node.copy({"writers": watched(node.writers, targets, name)})
            continue
        for inner in node.subgraphs:
            if id(inner) not in seen and isinstance(inner, Pregel):
                _wrap_in_place(inner, name, seen)
        if isinstance(node.bound, DurableNode):
            wrapped[name] = node
            continue
        durable = node.copy(
            {
                "bound": DurableNode(
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
                ),
                "writers": watched(node.writers, targets, name),
                "retry_policy": (),
                "timeout": None,
            }
        )
        wrapped[name] = unwatched(durable)
    return wrapped


def _wrap_in_place(inner: Pregel[Any, Any, Any, Any], name: str, seen: set[int]) -> None:
    if inner.checkpointer is True:
        raise KernelError(
            f"The subgraph of the node {name} has a checkpointer of its own (checkpointer=True).",
            hint="The run's journal takes its place: compile it without.",
        )
    inner.nodes = _wrap(inner, seen)
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
