"""A compiled graph behind a journal: what LangGraph gives, whatever dies in between."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.errors import NodeError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import Command, Overwrite, RetryPolicy, Send
from pydantic import BaseModel

from noesium_stream.errors import (
    CommitUnknownError,
    KernelError,
    NodeExecutionError,
    ReplayDivergenceError,
    StateError,
    failure_of,
)
from noesium_stream.event.standard import CheckpointCreated, SideEffectClass
from noesium_stream.kernel import Durability, DurableGraph, current_step, kernel_node, run_context
from noesium_stream.kernel.step import position as place
from tests.support.journal import ListJournal

Graph = StateGraph[Any, Any, Any, Any]


class State(TypedDict, total=False):
    n: int
    items: Annotated[list[Any], operator.add]
    value: Any


async def run(graph: Graph, state: Any, log: ListJournal | None = None, **options: Any) -> Any:
    config, journal = {"recursion_limit": 1000}, log or ListJournal()
    result = await DurableGraph(graph.compile(), **options).execute(journal, state, config)
    await journal.commit()  # as with the end of a run
    return result


@pytest.fixture(autouse=True)
def nothing_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that share their commits do not get to the log because time passes."""
    monkeypatch.setattr(run_context, "SHARE_S", 3600.0)


async def killed_everywhere(
    build: Callable[[], Graph], state: Any, durability: Durability = Durability.SYNC, **options: Any
) -> Any:
    """Run with a death before and after every commit, each followed by a whole execution on what is left."""
    options = {**options, "durability": durability}
    journal = ListJournal()
    expected = await run(build(), state, journal, **options)
    deltas = journal.deltas()
    for reaches_log in (True, False):
        for dies_at in range(1, journal.commits + 1):
            dying = ListJournal(dies_at=dies_at, reaches_log=reaches_log)
            with pytest.raises(CommitUnknownError):
                await run(build(), state, dying, **options)
            second = ListJournal(dying.log)
            assert await run(build(), state, second, **options) == expected
            assert second.deltas() == deltas
            keys = [event.idempotency_key for event in second.log if event.idempotency_key]
            assert len(keys) == len(set(keys)), "no step, call or event twice"
    return expected


def pair_of_subgraphs() -> Graph:
    inner = StateGraph(State)
    inner.add_node("double", lambda s: {"items": [s["n"] * 2]})
    inner.add_node("note", lambda s: {"items": ["note"]})
    inner.add_edge(START, "double")
    inner.add_edge("double", "note")
    called = StateGraph(State)
    called.add_node("square", lambda s: {"items": [s["n"] ** 2]})
    called.add_edge(START, "square")
    squares = called.compile()

    async def call(state: State) -> dict[str, Any]:
        first = await squares.ainvoke({"n": state["n"], "items": []})
        second = await squares.ainvoke({"n": state["n"] + 1, "items": []})
        return {"items": [first["items"], second["items"]]}

    graph = StateGraph(State)
    graph.add_node("declared", inner.compile())
    graph.add_node("call", call)
    graph.add_edge(START, "declared")
    graph.add_edge("declared", "call")
    return graph


async def test_nodes_of_declared_and_of_called_subgraphs_are_on_the_log(tmp_path: Any) -> None:
    result = await killed_everywhere(pair_of_subgraphs, {"n": 3, "items": []})
    journal = ListJournal()
    await run(pair_of_subgraphs(), {"n": 3, "items": []}, journal, durability=Durability.SYNC)
    nodes = Counter(e.payload["node"] for e in journal.log if e.event_type == "kernel.node.completed")
    assert nodes == {"declared": 1, "double": 1, "note": 1, "call": 1, "square": 2}
    assert result["items"] == [6, "note", [9], [16]]


async def test_a_called_subgraph_is_an_ordinary_graph_outside_of_a_run() -> None:
    graph = pair_of_subgraphs().compile()
    DurableGraph(graph)
    assert (await graph.ainvoke({"n": 3, "items": []}))["items"] == [6, "note", [9], [16]]


async def test_a_sync_node_may_call_a_graph() -> None:
    called = StateGraph(State)
    called.add_node("square", lambda s: {"items": [s["n"] ** 2]})
    called.add_edge(START, "square")
    squares = called.compile()

    def build() -> Graph:
        graph = StateGraph(State)
        graph.add_node("call", lambda s: {"items": squares.invoke({"n": s["n"], "items": []})["items"]})
        graph.add_edge(START, "call")
        return graph

    assert (await killed_everywhere(build, {"n": 5, "items": []}))["items"] == [25]


def wide() -> Graph:
    """A fork, a join, a fan-out with Send, a loop and a route by Command."""
    graph = StateGraph(State)

    async def count(state: State) -> Command[Any]:
        more = state["n"] < 3
        return Command(update={"n": state["n"] + 1, "items": ["count"]}, goto="left" if more else END)

    graph.add_node("left", lambda s: {"items": [f"left {s['n']}"]})
    graph.add_node("right", lambda s: {"items": [f"right {s['n']}"]})
    graph.add_node("each", lambda s: {"items": [s["n"]]})
    graph.add_node("join", lambda s: {"items": ["join"]})
    graph.add_node("count", count, destinations=("left", END))
    graph.add_edge(START, "left")
    graph.add_edge(START, "right")
    graph.add_conditional_edges("left", lambda s: [Send("each", {"n": n}) for n in range(12)], ["each"])
    graph.add_edge(["left", "right"], "join")
    graph.add_edge("each", "count")
    return graph


@pytest.mark.parametrize("durability", list(Durability))
async def test_forks_joins_fan_outs_loops_and_commands_survive_a_death_at_every_commit(
    durability: Durability,
) -> None:
    plain = await wide().compile().ainvoke({"n": 0, "items": []}, {"recursion_limit": 1000})
    result = await killed_everywhere(wide, {"n": 0, "items": []}, durability=durability)
    assert result == plain


async def test_a_run_that_starts_at_a_folded_checkpoint_ends_as_one_that_is_walked() -> None:
    plain = await wide().compile().ainvoke({"n": 0, "items": []}, {"recursion_limit": 1000})
    assert await killed_everywhere(wide, {"n": 0, "items": []}, walk_steps=1) == plain


class Colour(BaseModel):
    name: str


@dataclass
class Point:
    x: int
    seen: set[str] = field(default_factory=set)


class Rich(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    colour: Colour
    point: Point
    when: datetime
    pairs: dict[int, tuple[str, ...]]


def typed() -> Graph:
    def first(state: Rich) -> dict[str, Any]:
        return {
            "messages": [AIMessage("hello", id="m2")],
            "colour": Colour(name="red"),
            "point": Point(1, {"b", "a"}),
            "when": datetime(2026, 1, 2, tzinfo=UTC),
            "pairs": {1: ("a", "b")},
        }

    def second(state: Rich) -> dict[str, Any]:
        assert isinstance(state["messages"][-1], AIMessage)
        state["point"].seen.add(state["colour"].name)
        return {"when": state["when"] + timedelta(days=1), "point": state["point"]}

    graph = StateGraph(Rich)
    graph.add_node("first", first)
    graph.add_node("second", second)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    return graph


async def test_the_state_keeps_its_types() -> None:
    given = {"messages": [HumanMessage("hi", id="m1")]}
    result = await killed_everywhere(typed, given)
    assert result == await typed().compile().ainvoke(given)
    assert result["point"] == Point(1, {"a", "b", "red"})
    assert result["pairs"] == {1: ("a", "b")}


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class DeltaTalk(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, list, snapshot_frequency=2)]


@pytest.mark.parametrize("state", [Talk, DeltaTalk])
async def test_messages_without_ids_get_the_same_ones_on_every_execution(state: type) -> None:
    def build() -> Graph:
        graph = StateGraph(state)
        graph.add_node("a", lambda s: {"messages": [AIMessage("one"), ("user", "two")]})
        graph.add_node("b", lambda s: Command(update={"messages": "three"}))
        graph.add_edge(START, "a")
        graph.add_edge("a", "b")
        return graph

    result = await killed_everywhere(build, {"messages": [{"role": "user", "content": "zero"}]})
    assert [message.content for message in result["messages"]] == ["zero", "one", "two", "three"]
    assert len({message.id for message in result["messages"]}) == 4


async def test_messages_of_a_state_without_keys_get_the_same_ids() -> None:
    def build() -> Graph:
        graph: Graph = StateGraph(Annotated[list[AnyMessage], add_messages])
        graph.add_node("a", lambda s: [AIMessage("one"), ("user", "two")])
        graph.add_node("b", lambda s: Command(update="three"))
        graph.add_edge(START, "a")
        graph.add_edge("a", "b")
        return graph

    result = await killed_everywhere(build, [("user", "zero")])
    assert [message.content for message in result] == ["zero", "one", "two", "three"]
    assert len({message.id for message in result}) == 4


def appended(state: list[Any] | None, writes: list[Any]) -> list[Any]:
    """As the reducer that Deep Agents brings along: it gives no ids."""
    several = [item for write in writes for item in (write if isinstance(write, list) else [write])]
    return [*(state or []), *several]


class Mixed(TypedDict):
    items: Annotated[list[Any], DeltaChannel(appended, list, snapshot_frequency=2)]


async def test_messages_in_a_channel_of_anything_get_the_same_ids_and_what_is_none_stays() -> None:
    others = [{"name": "a"}, "text", 7, {"type": "other", "id": None}]

    def build() -> Graph:
        graph = StateGraph(Mixed)
        graph.add_node("a", lambda s: {"items": [AIMessage("one"), *others]})
        graph.add_node("b", lambda s: {"items": HumanMessage("two")})
        graph.add_node("c", lambda s: {"items": {"role": "user", "content": "three"}})
        graph.add_edge(START, "a")
        graph.add_edge("a", "b")
        graph.add_edge("b", "c")
        return graph

    result = await killed_everywhere(build, {"items": [{"role": "user", "content": "zero"}]})
    zero, one, *rest, two, three = result["items"]
    assert [zero.content, one.content, two.content, three["content"]] == ["zero", "one", "two", "three"]
    assert rest == others
    assert len({zero.id, one.id, two.id, three["id"]} - {None}) == 4


FORMS = {
    "Overwrite": Overwrite,
    "dict": lambda value: {"__overwrite__": value},
    "of JSON": lambda value: {"type": "__overwrite__", "value": value},
}


@pytest.mark.parametrize("state", [Talk, DeltaTalk, Mixed])
@pytest.mark.parametrize("form", FORMS)
async def test_messages_that_overwrite_others_get_the_same_ids(state: type, form: str) -> None:
    (key,) = state.__annotations__

    def build() -> Graph:
        graph = StateGraph(state)
        graph.add_node("a", lambda s: {key: [AIMessage("one")]})
        graph.add_node("b", lambda s: {key: FORMS[form]([AIMessage("two"), HumanMessage("three")])})
        graph.add_node("c", lambda s: {key: [AIMessage("four")]})
        graph.add_edge(START, "a")
        graph.add_edge("a", "b")
        graph.add_edge("b", "c")
        return graph

    result = await killed_everywhere(build, {key: [HumanMessage("zero")]})
    assert [message.content for message in result[key]] == ["two", "three", "four"]
    assert len({message.id for message in result[key]} - {None}) == 3


def replaced(state: tuple[int, ...] | None, writes: list[Any]) -> tuple[int, ...]:
    return (*(state or ()), *(item for write in writes for item in write))


class Pairs(TypedDict):
    values: Annotated[tuple[int, ...], DeltaChannel(replaced, tuple)]


async def test_a_tuple_that_overwrites_another_stays_one() -> None:
    def build() -> Graph:
        graph = StateGraph(Pairs)
        graph.add_node("a", lambda s: {"values": Overwrite((1, 2))})
        graph.add_node("b", lambda s: {"values": (3,)} if type(s["values"]) is tuple else {"values": ()})
        graph.add_edge(START, "a")
        graph.add_edge("a", "b")
        return graph

    assert (await killed_everywhere(build, {"values": (0,)}))["values"] == (1, 2, 3)


@pytest.mark.parametrize("state", [Talk, DeltaTalk, Mixed])
@pytest.mark.parametrize("called", [True, False], ids=["called", "sent to"])
async def test_messages_for_other_graphs_get_the_same_ids(state: type, called: bool) -> None:
    (key,) = state.__annotations__

    def build() -> Graph:
        inner = StateGraph(state)
        inner.add_node("first", lambda s: {key: [AIMessage(f"{s[key][-1].content} {s[key][-1].id}")]})
        inner.add_node("second", lambda s: {key: [AIMessage("end")]})
        inner.add_edge(START, "first")
        inner.add_edge("first", "second")
        other = inner.compile()

        async def call(s: Any) -> Any:
            answers = [await other.ainvoke({key: [HumanMessage(text)]}) for text in ("x", "y", "x")]
            return {key: [message for one in answers for message in one[key][:2]]}

        graph = StateGraph(state)
        graph.add_node("call", call if called else other)
        if called:
            graph.add_edge(START, "call")
        else:
            graph.add_conditional_edges(START, lambda s: [Send("call", {key: [HumanMessage("x")]})], ["call"])
        return graph

    result = await killed_everywhere(build, {key: [HumanMessage("zero")]})
    ids = [message.id for message in result[key]]
    assert None not in ids
    assert len(ids) == len(set(ids)) == (7 if called else 4)


@pytest.mark.parametrize("state", [Talk, DeltaTalk, Mixed])
async def test_a_long_conversation_that_is_taken_up_is_whole(state: type) -> None:
    (key,) = state.__annotations__

    def build() -> Graph:
        graph = StateGraph(state)
        graph.add_node("a", lambda s: {key: [AIMessage(f"a{len(s[key])}")]})
        graph.add_node("b", lambda s: {key: [AIMessage(f"b{len(s[key])}")]})
        graph.add_edge(START, "a")
        graph.add_edge("a", "b")
        graph.add_conditional_edges("b", lambda s: "a" if len(s[key]) < 8 else END)
        return graph

    given = {key: [HumanMessage("zero")]}
    result = await killed_everywhere(build, given, walk_steps=1)
    texts = [message.content for message in result[key]]
    assert texts == ["zero", "a1", "b2", "a3", "b4", "a5", "b6", "a7", "b8"]


class Model(BaseModel):
    n: int = 0
    word: str | None = None


@dataclass
class Record:
    n: int = 0
    word: str | None = None


@pytest.mark.parametrize("kind", [Model, Record])
async def test_a_state_may_be_a_pydantic_model_or_a_dataclass(kind: Any) -> None:
    def build() -> Graph:
        graph = StateGraph(kind)
        graph.add_node("one", lambda s: kind(n=s.n + 1))
        graph.add_node("two", lambda s: {"word": "w" * s.n})
        graph.add_edge(START, "one")
        graph.add_edge("one", "two")
        return graph

    result = await killed_everywhere(build, {"n": 2})
    assert result == await build().compile().ainvoke({"n": 2}) == {"n": 3, "word": "www"}


async def test_a_subgraph_routes_its_parent_by_a_command() -> None:
    def build() -> Graph:
        inner = StateGraph(State)
        inner.add_node("leave", lambda s: Command(graph=Command.PARENT, goto="after", update={"value": "in"}))
        inner.add_edge(START, "leave")
        graph = StateGraph(State)
        graph.add_node("inner", inner.compile(), destinations=("after",))
        graph.add_node("after", lambda s: {"items": ["after"]})
        graph.add_edge(START, "inner")
        return graph

    assert await killed_everywhere(build, {"n": 1, "items": []}) == {
        "n": 1,
        "items": ["after"],
        "value": "in",
    }


async def test_attempts_are_counted_over_deaths_and_the_last_failure_stays_the_last() -> None:
    tries: list[int] = []

    def build() -> Graph:
        def fails(state: State) -> dict[str, Any]:
            tries.append(1)
            raise ConnectionError(f"try {len(tries)}")

        graph = StateGraph(State)
        policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False)
        graph.add_node("fails", fails, retry_policy=policy)
        graph.add_edge(START, "fails")
        return graph

    dying = ListJournal(dies_at=3, reaches_log=True)  # with the third attempt's start or failure
    with pytest.raises((CommitUnknownError, ConnectionError)):
        await run(build(), {}, dying)
    second = ListJournal(dying.log)
    with pytest.raises((ConnectionError, NodeExecutionError), match="try 3"):
        await run(build(), {}, second)
    assert len(tries) == 3
    types = Counter(second.types())
    assert types["kernel.node.failed"] == 3
    assert types["kernel.node.retried"] == 2
    third = ListJournal(second.log)
    with pytest.raises(NodeExecutionError, match="ConnectionError: try 3"):
        await run(build(), {}, third)
    assert len(tries) == 3


async def test_what_is_not_retryable_fails_at_once() -> None:
    def fails(state: State) -> dict[str, Any]:
        raise ValueError("no use")

    graph = StateGraph(State)
    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, retry_on=ConnectionError)
    graph.add_node("fails", fails, retry_policy=policy)
    graph.add_edge(START, "fails")
    journal = ListJournal()
    with pytest.raises(ValueError, match="no use"):
        await run(graph, {}, journal)
    assert journal.types().count("kernel.node.failed") == 1


async def test_a_failure_is_routed_to_the_node_that_handles_it() -> None:
    def build() -> Graph:
        def fails(state: State) -> dict[str, Any]:
            raise ValueError("as expected")

        def handle(state: State, error: NodeError) -> dict[str, Any]:
            return {"items": [f"handled {error.error}"]}

        graph = StateGraph(State)
        graph.add_node("fails", fails, error_handler=handle)
        graph.add_edge(START, "fails")
        return graph

    result = await killed_everywhere(build, {"items": []})
    assert result["items"] == ["handled ValueError: as expected"]


async def test_a_timeout_bounds_a_sync_node_too() -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    @kernel_node(timeout=timedelta(milliseconds=20))
    def slow(state: State) -> dict[str, Any]:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        return {"value": "too late"}

    graph = StateGraph(State)
    graph.add_node("slow", slow)
    graph.add_edge(START, "slow")
    journal = ListJournal()
    with pytest.raises(NodeExecutionError, match=r"slow had not ended after 0\.02 s"):
        await run(graph, {}, journal)
    release.set()
    assert "kernel.node.completed" not in journal.types()


async def test_a_mistyped_key_is_told_with_the_one_that_was_meant() -> None:
    graph = StateGraph(State)
    graph.add_node("a", lambda s: {"item": [1]})
    graph.add_edge(START, "a")
    with pytest.raises(StateError, match="returned item, which the graph's state does not have") as caught:
        await run(graph, {"items": []})
    assert caught.value.hint == "Did you mean items?"


async def test_a_subgraph_with_a_checkpointer_of_its_own_is_refused() -> None:
    inner = StateGraph(State)
    inner.add_node("a", lambda s: {})
    inner.add_edge(START, "a")
    graph = StateGraph(State)
    graph.add_node("sub", inner.compile(checkpointer=True))
    graph.add_edge(START, "sub")
    with pytest.raises(KernelError, match="subgraph of the node sub has a checkpointer of its own"):
        DurableGraph(graph.compile())


async def test_a_checkpoint_follows_every_superstep() -> None:
    journal = ListJournal()
    await run(wide(), {"n": 2, "items": []}, journal)
    await journal.commit()
    events = [event for event in journal.log if event.event_type == "kernel.checkpoint.created"]
    created = [CheckpointCreated.model_validate(event.payload) for event in events]
    assert [item.step for item in created] == list(range(1, len(created) + 1))
    assert [item.parent_id for item in created] == [None, *(item.checkpoint_id for item in created[:-1])]
    assert created[0].nodes == ["left", "right"]


async def test_effects_of_a_node_are_not_repeated_when_it_runs_again() -> None:
    called: Counter[str] = Counter()

    async def node(state: State) -> dict[str, Any]:
        async def outside(name: str) -> str:
            called[name] += 1
            return name.upper()

        step, again = current_step(), SideEffectClass.IDEMPOTENT
        return {"items": [await step.effect(name, outside, name, effect_class=again) for name in ("a", "b")]}

    def build() -> Graph:
        graph = StateGraph(State)
        graph.add_node("node", node)
        graph.add_edge(START, "node")
        return graph

    dying = ListJournal(dies_at=4)
    with pytest.raises(CommitUnknownError):
        await run(build(), {"items": []}, dying)
    assert (await run(build(), {"items": []}, ListJournal(dying.log)))["items"] == ["A", "B"]
    assert called["a"] == 1


async def test_a_recorded_failure_keeps_its_type_and_its_message() -> None:
    def fails(state: State) -> dict[str, Any]:
        raise LookupError("nothing there")

    graph = StateGraph(State)
    graph.add_node("fails", fails)
    graph.add_edge(START, "fails")
    journal = ListJournal()
    with pytest.raises(LookupError) as first:
        await run(graph, {}, journal)
    with pytest.raises(NodeExecutionError) as second:
        await run(graph, {}, ListJournal(journal.log))
    assert failure_of(first.value) == failure_of(second.value) == ("LookupError", "nothing there")


async def test_every_attempt_has_the_same_input_and_another_one_is_a_branch() -> None:
    seen: list[list[int]] = []

    def fails_once(state: State) -> dict[str, Any]:
        seen.append(list(state["items"]))
        state["items"].append(99)
        if len(seen) == 1:
            raise ConnectionError("not yet")
        return {"value": "done"}

    def build() -> Graph:
        graph = StateGraph(State)
        policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False)
        graph.add_node("a", fails_once, retry_policy=policy)
        graph.add_edge(START, "a")
        return graph

    journal = ListJournal()
    await run(build(), {"items": [1]}, journal, durability=Durability.SYNC)
    assert seen == [[1], [1]]
    [retried] = [e.payload for e in journal.log if e.event_type == "kernel.node.retried"]
    assert retried["branch"] is False
    failed = next(n for n, e in enumerate(journal.log) if e.event_type == "kernel.node.failed")
    other = ListJournal(journal.log[: failed + 1])
    await run(build(), {"items": [2]}, other, durability=Durability.SYNC)
    [retried] = [e.payload for e in other.log if e.event_type == "kernel.node.retried"]
    assert retried["branch"] is True


async def test_a_sync_node_and_a_thread_call_through_the_step() -> None:
    def outside(what: str) -> str:
        return what.upper()

    def sync_node(state: State) -> dict[str, Any]:
        step = current_step()
        return {
            "items": [step.run_sync(step.effect("say", outside, "sync", effect_class=SideEffectClass.PURE))]
        }

    async def threads(state: State) -> dict[str, Any]:
        def call(what: str) -> str:
            step = current_step()
            said: str = step.run_sync(step.effect("say", outside, what, effect_class=SideEffectClass.PURE))
            return said

        return {"items": await asyncio.gather(*(asyncio.to_thread(call, what) for what in "abc"))}

    def build() -> Graph:
        graph = StateGraph(State)
        graph.add_node("sync", sync_node)
        graph.add_node("threads", threads)
        graph.add_edge(START, "sync")
        graph.add_edge("sync", "threads")
        return graph

    assert (await killed_everywhere(build, {"items": []}))["items"] == ["SYNC", "A", "B", "C"]

    async def blocks(state: State) -> dict[str, Any]:
        step = current_step()
        return {"value": step.run_sync(step.effect("say", outside, "no"))}

    graph = StateGraph(State)
    graph.add_node("blocks", blocks)
    graph.add_edge(START, "blocks")
    with pytest.raises(KernelError, match="blocks waits for a call on the run's event loop"):
        await run(graph, {})


def paying(first: str, second: str, done: list[str], *, gathered: bool = False) -> Callable[[], Graph]:
    async def outside(what: str) -> str:
        done.append(what)
        return what

    async def node(state: State) -> dict[str, Any]:
        step = current_step()

        async def late(what: str) -> Any:
            for _ in range(5):
                await asyncio.sleep(0)
            return await step.effect("pay", outside, what, effect_class=SideEffectClass.IDEMPOTENT)

        async def soon(what: str) -> Any:
            return await step.effect("pay", outside, what, effect_class=SideEffectClass.IDEMPOTENT)

        if gathered:
            return {"items": await asyncio.gather(late(first), soon(second))}
        return {"items": [await soon(first), await soon(second)]}

    def build() -> Graph:
        graph = StateGraph(State)
        graph.add_node("pay", node)
        graph.add_edge(START, "pay")
        return graph

    return build


async def test_code_that_has_changed_does_nothing_new_before_it_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(place, "PATIENCE_S", 0.0)
    done: list[str] = []
    dying = ListJournal(dies_at=3)  # the first payment is on the log, the second is about to be
    with pytest.raises(CommitUnknownError):
        await run(paying("anna", "bert", done)(), {"items": []}, dying)
    assert done == ["anna"]
    again = ListJournal(dying.log)
    with pytest.raises(ReplayDivergenceError, match=r'records a call of pay .*"anna".* which was not done'):
        await run(paying("zoe", "bert", done)(), {"items": []}, again)
    assert done == ["anna"], "nobody else was paid"


async def test_a_new_call_of_one_task_waits_for_those_of_others_that_are_on_the_log() -> None:
    done: list[str] = []
    whole = ListJournal()
    await run(paying("anna", "bert", done, gathered=True)(), {"items": []}, whole)
    # As if the slower task's call had been first, and the process died right after it.
    keep = [
        e for e in whole.log if "bert" not in str(e.payload) and not e.event_type.startswith("kernel.node.c")
    ]
    again = ListJournal(keep[: 1 + next(n for n, e in enumerate(keep) if e.event_type == "effect.completed")])
    done.clear()
    assert (await run(paying("anna", "bert", done, gathered=True)(), {"items": []}, again))["items"] == [
        "anna",
        "bert",
    ]
    assert done == ["bert"]
