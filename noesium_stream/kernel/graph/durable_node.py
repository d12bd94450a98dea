"""A graph's node behind the run's journal (RFC-0003 §7).

On entry it looks for the node's `kernel.node.completed` on the log and returns the recorded delta without
running the body. Otherwise it runs the body and returns after entered, events and completed are staged; they
are committed as the run's durability promises, with SYNC before the next node begins. Failures and retries
are on the log as well, so that attempts are counted across crashes. Outside a run the node behaves as in
plain LangGraph.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Coroutine, Sequence
from typing import Any, NoReturn

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
from langgraph.pregel import Pregel
from langgraph.types import Interrupt, RetryPolicy

from noesium_stream.config import ExecutionMode
from noesium_stream.errors import (
    CommitUnknownError,
    FencedError,
    KernelError,
    LogClosedError,
    NodeExecutionError,
    StrictModeError,
    failure_of,
    hint_of,
)
from noesium_stream.event.rules.labels import summary_of
from noesium_stream.event.standard import NodeCompleted, NodeFailed
from noesium_stream.kernel.decorators import NodeMeta, node_meta
from noesium_stream.kernel.error_classes import declare_errors
from noesium_stream.kernel.failure_location import traceback_of, where_of
from noesium_stream.kernel.failure_of_code import failure_of_code
from noesium_stream.kernel.graph.node_config import answering, for_this_graph, input_hash_of
from noesium_stream.kernel.graph.node_retry import NodeTimedOutError, pause_ms
from noesium_stream.kernel.modes import compare_runs
from noesium_stream.kernel.run_context import RunContext, current_run
from noesium_stream.kernel.run_history import StepKey, step_id
from noesium_stream.kernel.state.message_ids import MessageKeys, identified
from noesium_stream.kernel.state.node_values import (
    NodeRules,
    Targets,
    record,
    restore,
    returned,
    take_events,
)
from noesium_stream.kernel.step.pieces import finish_pieces, stream_writer
from noesium_stream.kernel.step.position import Place, enclosing_step
from noesium_stream.kernel.step.waits import Waits
from noesium_stream.kernel.strict.guard import guard_bound

NO_LONGER_OWNER = (FencedError, CommitUnknownError, LogClosedError)
"""Errors after which this process may not speak for the run: it records nothing, the next owner continues."""


class DurableNode(Runnable[Any, Any]):
    """A node's body behind the journal of the run that executes it.

    Args:
        name: the node's name in its graph.
        bound: LangGraph's runnable of the body.
        keys: the keys of the graph's state, to detect a mistyped key; None if they are unknown.
        retry: the node's retry policies; the first that matches an error counts.
        timeout_s: time limit of one attempt of the body.
        ask_before: wait for a person before the node (LangGraph's `interrupt_before`).
        ask_after: wait for a person after it.
        handled: whether the graph routes the node's failure to another node.
        messages: keys of the state that hold chat messages.
        targets: the nodes that it may name as the next ones.
    """

    def __init__(
        self,
        name: str,
        bound: Runnable[Any, Any],
        *,
        keys: frozenset[str] | None = None,
        retry: Sequence[RetryPolicy] = (),
        timeout_s: float | None = None,
        ask_before: bool = False,
        ask_after: bool = False,
        handled: bool = False,
        messages: MessageKeys | None = None,
        targets: Targets = None,
    ) -> None:
        self.name = name
        self._bound = bound
        declare_errors(getattr(bound, body, None) for body in ("func", "afunc"))
        self._guarded = guard_bound(bound, name)
        self._meta: NodeMeta = node_meta(bound)
        known = None if isinstance(bound, Pregel) else keys
        self._rules = NodeRules(str(name), known, messages or {}, targets)
        self._retry = retry
        self._timeout_s = self._meta.timeout_s or timeout_s
        self._ask_before, self._ask_after = ask_before, ask_after
        self._handled = handled

    @property
    def bound(self) -> Runnable[Any, Any]:
        """LangGraph's runnable of the body."""
        return self._bound

    @property
    def compensations(self) -> tuple[str, ...]:
        """The reference of what undoes the node, if it names something."""
        named = self._meta.compensation
        return () if named is None else (named,)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run in a graph that a sync node calls: the kernel itself runs on the run's event loop."""
        run = current_run()
        if run is None:
            return self._bound.invoke(input, config, **kwargs)
        if run.on_its_loop():
            raise KernelError(
                f"The node {self.name} was invoked synchronously in the run's event loop.",
                hint="Call the graph with ainvoke in async nodes.",
            )
        return asyncio.run_coroutine_threadsafe(self._in_run(run, input, config, kwargs), run.loop).result()

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the recorded delta, or run the body and record it."""
        run = current_run()
        if run is None:
            return await self._bound.ainvoke(input, config, **kwargs)
        return await self._in_run(run, input, config, kwargs)

    async def _in_run(
        self, run: RunContext, input: Any, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> Any:
        outer = enclosing_step()
        if outer is not None:
            outer.check_open()
        key, call_hash = _step_key(config, outer, input, run.within)
        if outer is None:
            run.superstep(key[0], config)
        await run.paid()
        while True:
            done = run.journal.history.completed.get(key)
            if done is not None:
                await run.settled()
                return restore(done.payload["delta"])
            failure = run.journal.history.failed.get(key)
            if failure is not None and failure.event_id not in run.journal.history.forgiven:
                await self._wait_for_retry(run, failure.timestamp_ms, failure.payload)
            await run.journal.activity.may_begin()
            # Every attempt has the same input, whatever the body does to it.
            given = copy.deepcopy(input) if self._retry else input
            try:
                return restore(await self._attempt(run, key, given, config, kwargs, call_hash))
            except _Again:
                continue

    async def _wait_for_retry(self, run: RunContext, failed_at_ms: int, failure: dict[str, Any]) -> None:
        """Wait for the rest of the pause after a recorded failure; raise the last failure again."""
        pause_ms = failure.get("retry_in_ms")
        if pause_ms is None:
            await run.journal.commit()
            raise _recorded(failure)
        journal, due_ms = run.journal, failed_at_ms + pause_ms
        if not journal.has_passed(due_ms):
            await journal.until(lambda: journal.has_passed(due_ms), due_ms)

    async def _attempt(
        self,
        run: RunContext,
        key: StepKey,
        input: Any,
        config: RunnableConfig | None,
        kwargs: dict[str, Any],
        call_hash: str | None,
    ) -> Any:
        journal = run.journal
        attempt = journal.history.failures[key] + 1
        input_hash = input_hash_of(input) if self._retry else None
        is_graph = isinstance(self._bound, Pregel)
        step = Place(
            journal,
            str(self.name),
            key,
            self._meta,
            attempt,
            input_hash,
            call_hash,
            argument=summary_of(input) if _is_sent(key) and key not in journal.history.entered else None,
            is_graph=is_graph,
        )
        begun, task = journal.clock.monotonic(), asyncio.current_task()
        token = step.enter()
        try:
            with stream_writer(step, config) as given:
                if run.mode is ExecutionMode.STRICT and self._meta.deterministic:
                    value = await self._twice(run, step, input, given, kwargs)
                else:
                    value = await self._body(run, step, input, given, kwargs)
            await finish_pieces(step)
            delta, caused_nothing = self._complete(step, value, attempt, begun)
        except ParentCommand as bubble:
            # A node of a subgraph that sends a command to this graph: the subgraph's last result.
            command = for_this_graph(bubble, config, str(self.name))
            if command is None:
                raise
            await finish_pieces(step)
            delta, caused_nothing = self._complete(step, command, attempt, begun)
        except (GraphBubbleUp, *NO_LONGER_OWNER):
            raise
        except BaseException as error:
            failure = failure_of_code(error, task)
            if failure is None:
                raise
            await self._fail(run, step, failure, attempt, begun, input_hash)
        finally:
            step.leave(token)
        await run.reached(caused_nothing)
        return delta

    async def _twice(
        self, run: RunContext, step: Place, input: Any, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> Any:
        """The body's value, after a second execution has returned the same (RFC-0003 §7): STRICT mode."""
        found = []
        for silent, given in ((True, copy.deepcopy(input)), (False, input)):
            step.begin_again()
            step.silent = silent  # its pieces are written once
            value = await self._body(run, step, given, config, kwargs)
            stripped, returned = take_events(value)
            events = [[e.event_type(), e.model_dump(mode="json")] for e in [*step.emitted, *returned]]
            found.append((record(identified(stripped, self._rules.messages, step.uuid)), events))
        (delta, events), (delta_again, events_again) = found
        difference = compare_runs(delta, delta_again) or compare_runs(events, events_again, "events")
        if difference is not None:
            raise StrictModeError(
                f"The node {self.name} is declared deterministic, and two executions differ: {difference}.",
                hint="Say @kernel_node(deterministic=False, entropy_sources=[...]), or make it so.",
            )
        return value

    async def _body(
        self, run: RunContext, step: Place, input: Any, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> Any:
        if self._ask_before:
            await Waits(step).interrupt({"before": self.name})
        answers: list[Any] = []
        while True:
            try:
                if answers:
                    with answering(config, answers) as answered:
                        value = await self._bounded(run, input, answered, kwargs)
                else:
                    value = await self._bounded(run, input, config, kwargs)
                break
            except GraphInterrupt as bubble:
                # LangGraph's `interrupt()`: the journal asks the question, and the body runs again with the
                # answers so far; its effects are on the log by now.
                interrupts: Sequence[Interrupt] = bubble.args[0] if bubble.args else ()
                if len(interrupts) != 1:
                    raise
                answers.append(
                    await Waits(step).interrupt(interrupts[0].value, interrupts[0].response_schema)
                )
                step.begin_again()
        if self._ask_after:
            await Waits(step).interrupt({"after": self.name})
        return value

    def _bounded(
        self, run: RunContext, input: Any, config: RunnableConfig | None, kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        bound = self._guarded if run.mode is ExecutionMode.STRICT else self._bound
        called = bound.ainvoke(input, config, **kwargs)
        return called if self._timeout_s is None else self._limited(run, called, self._timeout_s)

    async def _limited(self, run: RunContext, called: Coroutine[Any, Any, Any], timeout_s: float) -> Any:
        limit = asyncio.timeout(timeout_s)
        try:
            with run.journal.activity.working():
                async with limit:
                    return await called
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise NodeTimedOutError(str(self.name), timeout_s) from error

    def _complete(self, step: Place, value: Any, attempt: int, begun: float) -> tuple[Any, bool]:
        """Stage the node's events and its delta; return the delta, and whether the step caused nothing."""
        delta, events = returned(value, self._rules, step.uuid)
        step.check_complete()
        journal, clock = step.journal, step.journal.clock
        savepoint = journal.savepoint()
        try:
            step.stage_events(events)
        except Exception:
            journal.rollback(savepoint)  # all of a node's events or none
            raise
        completed = NodeCompleted(
            run_id=step.run_id,
            node=step.node,
            step=step.key[0],
            task_path=step.key[1],
            attempt=attempt,
            delta=delta,
            duration_ms=_elapsed(clock.monotonic() - begun),
            entropy_sources=list(self._meta.entropy_sources),
            taken=dict(sorted(step.taken.items())) or None,
        )
        key = "/".join((step.run_id, str(step.key[0]), step.key[1], "completed"))
        trace = journal.identity.trace.child(clock.token(8))
        journal.stage(completed, trace=trace, causation_id=step.entered.event_id, idempotency_key=key)
        return delta, not step.reached_out and not events

    async def _fail(
        self,
        run: RunContext,
        step: Place,
        error: Exception,
        attempt: int,
        begun: float,
        input_hash: str | None,
    ) -> NoReturn:
        journal, clock = run.journal, run.journal.clock
        pause = pause_ms(self._retry, error, attempt, step)
        error_type, message = failure_of(error)
        failed = NodeFailed(
            run_id=step.run_id,
            node=step.node,
            step=step.key[0],
            task_path=step.key[1],
            attempt=attempt,
            error_type=error_type,
            message=message,
            duration_ms=_elapsed(clock.monotonic() - begun),
            retry_in_ms=pause,
            input_hash=input_hash,
            hint=hint_of(error),
            where=where_of(error),
            traceback=traceback_of(error),
        )
        trace = journal.identity.trace.child(clock.token(8))
        event = journal.stage(failed, trace=trace, causation_id=step.entered.event_id)
        await journal.commit()
        if pause is not None:
            raise _Again
        if self._handled:
            # The failure node gets the same error whether it runs now or after a crash.
            raise _recorded(event.payload) from error
        raise error


class _Again(Exception):
    """The attempt failed, and another one follows."""


def _recorded(failure: dict[str, Any]) -> NodeExecutionError:
    kind, message = failure["error_type"], failure["message"]
    return NodeExecutionError(
        f"{kind}: {message}",
        hint=failure.get("hint"),
        recorded=(kind, message),
        where=failure.get("where"),
    )


def _elapsed(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def _step_key(
    config: RunnableConfig | None, outer: Place | None, input: Any, within: str | None = None
) -> tuple[StepKey, str | None]:
    """The step's key, and the hash of its input if a graph begins that a body has called.

    `within` is the prefix of the task paths of a graph that undoes a part of the run.
    """
    metadata = (config or {}).get("metadata", {})
    step, path = int(metadata["langgraph_step"]), _task_path(metadata["langgraph_path"])
    if outer is None:
        return (step, path if within is None else f"{within}|0|{path}"), None
    # A node of a subgraph: under the step that runs it, with a number if that step runs several.
    call = str(metadata.get("langgraph_checkpoint_ns", "")).split("|")[:-1]
    live = next((part for part in reversed(call) if part.isdigit()), "0")
    calls = outer.subcalls
    call_hash = input_hash_of(input) if not calls.declared and calls.is_first(live, step) else None
    number = calls.number(live, path, call_hash)
    return (step, f"{step_id(outer.key)}|{number}|{path}"), call_hash


def _is_sent(key: StepKey) -> bool:
    """Whether a `Send` runs the task."""
    return key[1].rpartition("|")[2].startswith("push:")


def _task_path(path: Any) -> str:
    """LangGraph's task path as a text that is the same in every process: `pull:weigh`, `push:0`."""
    if isinstance(path, tuple | list):
        parts = [_task_path(part) for part in path if not isinstance(part, bool)]
        return ":".join(part.removeprefix("__pregel_") for part in parts)
    return str(path)
