"""What a node may do, and what of it is on the log."""

from __future__ import annotations

import asyncio
import operator
import random
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send

from noesium_stream.errors import KernelError, RunCancelledError, RunFailedError
from noesium_stream.event import DomainEvent
from noesium_stream.event.standard import RunCompleted, SideEffectClass
from noesium_stream.kernel import NodeResult, current_step, kernel_node
from tests.support.graphs import running
from tests.support.reading import PATIENCE_S


class State(TypedDict, total=False):
    n: int
    items: Annotated[list[Any], operator.add]
    value: Any


class Seen(DomainEvent, event_type="test.seen"):
    n: int


def chain(**nodes: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(State)
    previous = START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(previous, name)
        previous = name
    graph.add_edge(previous, END)
    return graph


async def outcome(graph: StateGraph[Any, Any, Any, Any], home: Path, **state: Any) -> Any:
    async with running(graph, home) as client:
        client.log.catalogue.register(Seen)
        return await (await client.start("sample", state)).result(timeout=PATIENCE_S)


async def history(graph: StateGraph[Any, Any, Any, Any], home: Path, **state: Any) -> list[Any]:
    async with running(graph, home) as client:
        client.log.catalogue.register(Seen)
        return [event async for event in (await client.start("sample", state)).events()]


async def test_a_sync_node_an_async_node_and_send_run_as_in_langgraph(tmp_path: Path) -> None:
    graph = StateGraph(State)
    graph.add_node("first", lambda state: {"items": ["first"]})
    graph.add_node("each", lambda state: {"items": [state["n"] * 2]})
    graph.add_edge(START, "first")
    graph.add_conditional_edges("first", lambda state: [Send("each", {"n": n}) for n in range(5)], ["each"])
    graph.add_edge("each", END)
    assert await outcome(graph, tmp_path, items=[]) == {"items": ["first", 0, 2, 4, 6, 8]}


async def test_a_command_updates_and_routes(tmp_path: Path) -> None:
    graph = StateGraph(State)

    def choose(state: State) -> Command[Any]:
        return Command(update={"value": "chosen", "_pending_events": [Seen(n=1)]}, goto="right")

    graph.add_node("choose", choose, destinations=("left", "right"))
    graph.add_node("left", lambda state: {"items": ["left"]})
    graph.add_node("right", lambda state: {"items": ["right"]})
    graph.add_edge(START, "choose")
    result = await outcome(graph, tmp_path, items=[])
    assert result == {"items": ["right"], "value": "chosen"}


async def test_pending_events_come_between_entered_and_completed_of_their_node(tmp_path: Path) -> None:
    events = await history(
        chain(a=lambda s: {"_pending_events": [Seen(n=1), Seen(n=2)]}, b=lambda s: {"value": 1}), tmp_path
    )
    types = [event.event_type for event in events]
    assert types == [
        "run.requested",
        "run.started",
        "kernel.node.entered",
        "test.seen",
        "test.seen",
        "kernel.node.completed",
        "kernel.checkpoint.created",
        "kernel.node.entered",
        "kernel.node.completed",
        "kernel.checkpoint.created",
        "run.completed",
    ]
    entered, first = events[2], events[3]
    assert first.causation_id == entered.event_id
    assert len({event.trace.span_id for event in events[2:]}) == len(events[2:])
    assert len({event.trace.trace_id for event in events}) == 1


async def test_a_node_may_return_a_result_with_delta_and_events(tmp_path: Path) -> None:
    def node(state: State) -> NodeResult:
        return NodeResult(state_delta={"value": 7}, events=[Seen(n=1)])

    events = await history(chain(a=node), tmp_path)
    assert [event.payload["n"] for event in events if event.event_type == "test.seen"] == [1]
    assert events[-1].payload["result"]["value"] == 7


async def test_what_no_json_has_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"delta\.value\[1\] is of type object, which"):
        await outcome(chain(a=lambda s: {"value": [1, object()]}), tmp_path)


async def test_an_event_of_an_unknown_type_fails_the_run_and_leaves_no_gap(tmp_path: Path) -> None:
    class Stranger(DomainEvent, event_type="test.stranger"):
        n: int

    async with running(chain(a=lambda s: {"_pending_events": [Stranger(n=1)]}), tmp_path) as client:
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError, match=r"test\.stranger"):
            await run.result(timeout=PATIENCE_S)
        numbers = [int(record.header("noesium_seq") or b"-1") async for record in run.records(follow=False)]
    assert numbers == list(range(len(numbers)))


async def test_gathered_effects_keep_their_results_whatever_order_they_end_in(tmp_path: Path) -> None:
    calls: Counter[int] = Counter()

    async def double(n: int) -> int:
        calls[n] += 1
        for _ in range(random.randrange(5)):
            await asyncio.sleep(0)
        return n * 2

    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        return {"items": await asyncio.gather(*(step.effect("double", double, n) for n in range(8)))}

    result = await outcome(chain(a=node), tmp_path, items=[])
    assert result["items"] == [n * 2 for n in range(8)]
    assert set(calls.values()) == {1}


async def test_a_failed_effect_is_recorded_and_a_retry_has_another_key(tmp_path: Path) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return "at last"

    async def node(state: State) -> dict[str, Any]:
        return {"value": await current_step().effect("flaky", flaky)}

    graph = StateGraph(State)
    retry = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False)
    graph.add_node("a", node, retry_policy=retry)
    graph.add_edge(START, "a")
    events = await history(graph, tmp_path)
    types = Counter(event.event_type for event in events)
    assert events[-1].payload["result"]["value"] == "at last"
    assert types["effect.requested"] == 3
    assert types["effect.failed"] == types["kernel.node.failed"] == types["kernel.node.retried"] == 2
    keys = {e.payload["idempotency_key"] for e in events if e.event_type == "effect.requested"}
    assert len(keys) == 3


async def test_time_ids_and_chance_of_a_step_are_the_same_on_every_execution(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        seen.append((step.now(), step.uuid(), step.uuid(), step.random(), step.random()))
        if len(seen) == 1:
            raise ConnectionError("once more")
        return {}

    graph = StateGraph(State)
    graph.add_node("a", node, retry_policy=RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False))
    graph.add_edge(START, "a")
    await outcome(graph, tmp_path, n=1)
    assert seen[0] == seen[1]
    assert seen[0][1] != seen[0][2]
    assert seen[0][3] != seen[0][4]


async def test_signals_are_delivered_in_order_to_a_run_that_waits(tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        return {"items": [await step.signal("go"), await step.signal("go")]}

    async with running(chain(a=node), tmp_path) as client:
        run = await client.start("sample", {"items": []})
        await run.signal("go", {"x": 1})
        await run.signal("go", 2)
        assert (await run.result(timeout=PATIENCE_S))["items"] == [{"x": 1}, 2]


async def test_an_endless_loop_ends_with_a_clear_error(tmp_path: Path) -> None:
    graph = StateGraph(State)
    graph.add_node("a", lambda s: {"items": [1]})
    graph.add_edge(START, "a")
    graph.add_conditional_edges("a", lambda s: "a", ["a"])
    with pytest.raises(RunFailedError, match="had not ended after 1,000 supersteps"):
        await outcome(graph, tmp_path, items=[])


async def test_a_nondeterministic_node_names_its_entropy_in_the_event(tmp_path: Path) -> None:
    @kernel_node(deterministic=False, entropy_sources=["model"])
    async def node(state: State) -> dict[str, Any]:
        return {}

    events = await history(chain(a=node, b=lambda s: {}), tmp_path, n=1)
    entered = [event.payload for event in events if event.event_type == "kernel.node.entered"]
    assert [(e["deterministic"], e.get("entropy_sources", [])) for e in entered] == [
        (False, ["model"]),
        (True, []),
    ]


def test_the_current_step_exists_only_in_a_node() -> None:
    with pytest.raises(KernelError, match="outside a node"):
        current_step()


def test_a_deterministic_node_has_no_sources_of_entropy() -> None:
    with pytest.raises(ValueError, match="no sources of entropy"):
        kernel_node(deterministic=True, entropy_sources=["model"])


async def test_an_external_effect_of_unknown_outcome_is_not_repeated(tmp_path: Path) -> None:
    called: Counter[str] = Counter()
    reached = asyncio.Event()

    async def outside() -> str:
        called["outside"] += 1
        reached.set()
        await asyncio.Event().wait()
        return "never"

    async def node(state: State) -> dict[str, Any]:
        effect_class = SideEffectClass(state["value"])
        return {"value": await current_step().effect("outside", outside, effect_class=effect_class)}

    from_log = chain(a=node)
    async with running(from_log, tmp_path) as client:
        run = await client.start("sample", {"value": "external"})
        await reached.wait()
        owner_log = client.log
        # The process dies between the call and its record: the partition is given up and taken again.
        writer = await owner_log.writer(f"{owner_log.topology.journal('sample')}/{await partition(run)}")
        await writer.close()
        await run.signal("wake the owner, so that it notices", None)
        async for event in run.events():
            if event.event_type == "effect.outcome.unknown":
                break
        [unknown] = await run.unresolved_effects()
        await run.resolve_effect(unknown.effect_id, "result", "it was done")
        assert (await run.result(timeout=PATIENCE_S))["value"] == "it was done"
        types = [event.event_type async for event in run.events(follow=False)]
    assert called["outside"] == 1
    assert types.count("effect.outcome.unknown") == 1


async def partition(run: Any) -> int:
    async for record in run.records(follow=False):
        return int(record.partition)
    raise AssertionError("the run has no records")


async def test_a_node_cannot_emit_what_the_kernel_alone_writes(tmp_path: Path) -> None:
    events = [Seen(n=1), RunCompleted(run_id="x", duration_ms=1)]
    async with running(chain(a=lambda s: {"_pending_events": events}), tmp_path) as client:
        client.log.catalogue.register(Seen)
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError, match=r"emits run\.completed, which the kernel alone writes"):
            await run.result(timeout=PATIENCE_S)
        types = [event.event_type async for event in run.events(follow=False)]
    assert "test.seen" not in types, "all of a node's events or none"
    assert types.count("kernel.node.failed") == 1


async def test_the_result_of_an_effect_is_on_the_log_even_of_a_run_that_is_cancelled(tmp_path: Path) -> None:
    done = asyncio.Event()

    async def outside() -> str:
        return "done"

    async def node(state: State) -> dict[str, Any]:
        await current_step().effect("outside", outside)
        done.set()
        await asyncio.Event().wait()
        return {}

    async with running(chain(a=node), tmp_path) as client:
        run = await client.start("sample", {})
        await done.wait()
        await run.cancel()
        with pytest.raises(RunCancelledError):
            await run.result(timeout=PATIENCE_S)
        types = [event.event_type async for event in run.events(follow=False)]
    assert types.count("effect.completed") == 1
