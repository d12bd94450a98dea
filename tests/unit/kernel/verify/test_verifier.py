"""A run is as recorded with the code that made it; a change of the code is found and its node named."""

from __future__ import annotations

import asyncio
import operator
import random
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send

from noesium_stream.event import DomainEvent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.kernel.recording.recorded_run import RecordedRun, dump_history, load_history
from tests.support.replays import Graph, recorded, verify
from tests.support.sample_agents import Echo


class State(TypedDict, total=False):
    order: int
    items: Annotated[list[Any], operator.add]
    price: Any
    mood: str
    reply: str
    answer: str


class Other(TypedDict, total=False):
    order: int
    items: Annotated[list[Any], lambda old, new: new + old]
    price: Any
    mood: str
    reply: str
    answer: str


class Weighed(DomainEvent, event_type="test.weighed"):
    n: int


class Priced(DomainEvent, event_type="test.priced"):
    n: int


CALLED: Counter[str] = Counter()
IDEMPOTENT = SideEffectClass.IDEMPOTENT


async def price(n: int) -> int:
    CALLED["price"] += 1
    return n * 10


async def stock(n: int) -> int:
    CALLED["stock"] += 1
    return n


async def look_up(state: State) -> dict[str, Any]:
    step = current_step()
    cost = await step.effect("price", price, state["order"], effect_class=IDEMPOTENT)
    left = await step.effect("stock", stock, state["order"], effect_class=IDEMPOTENT)
    return {"price": cost + left, "_pending_events": [Weighed(n=1), Priced(n=2)]}


def choose(state: State) -> Command[Any]:
    return Command(update={"mood": "calm"}, goto=[Send("each", {"order": n}) for n in range(3)])


def each(state: State) -> dict[str, Any]:
    return {"items": [state["order"] * 2]}


async def ask(state: State) -> dict[str, Any]:
    step = current_step()
    said = await step.invoke("text.echo", {"text": "good day"}, version="^1")
    return {"reply": said["reply"], "answer": str(await step.signal("go"))}


def sort(state: State) -> dict[str, Any]:
    return {"order": sum(state["items"])}


def close(state: State) -> dict[str, Any]:
    return {"mood": "closed"}


def build(*, state: Any = State, gate: Callable[[Any], str] | None = None, **nodes: Any) -> Graph:
    """The graph of these tests, some nodes of it replaced; `name=None` leaves one out."""
    bodies = {"look_up": look_up, "choose": choose, "each": each, "ask": ask, "sort": sort, "close": close}
    bodies |= nodes
    graph = StateGraph(state)
    for name, body in bodies.items():
        if body is not None:
            graph.add_node(name, body)
    graph.add_edge(START, "look_up")
    graph.add_edge("look_up", "choose")
    graph.add_edge("each", "ask")
    after_ask = "sort" if bodies["sort"] else "tidy" if "tidy" in bodies else "close"
    graph.add_conditional_edges("ask", gate or (lambda state: after_ask), ["close", after_ask])
    if after_ask != "close":
        graph.add_edge(after_ask, "close")
    graph.add_edge("close", END)
    return graph


def with_edge() -> Graph:
    graph = build(extra=lambda state: {"mood": "extra"})
    graph.add_edge("ask", "extra")
    return graph


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    """One run of the unchanged graph."""
    made = recorded(
        build(),
        tmp_path_factory.mktemp("home"),
        events=(Weighed, Priced),
        signals=[("go", "yes"), ("late", "no")],
        others=[Echo],
        order=7,
        items=[],
    )
    run = asyncio.run(made)
    assert run.terminal is not None
    assert run.terminal.event_type == "run.completed"
    return run


def changed(name: str) -> Callable[[Any], Any]:
    def use(body: Any) -> Any:
        MUTATIONS.append(pytest.param(name, body, id=body.__name__))
        return body

    return use


MUTATIONS: list[Any] = []


@changed("look_up")
def swapped_calls() -> Graph:
    async def look_up(state: State) -> dict[str, Any]:
        step = current_step()
        left = await step.effect("stock", stock, state["order"], effect_class=IDEMPOTENT)
        cost = await step.effect("price", price, state["order"], effect_class=IDEMPOTENT)
        return {"price": cost + left, "_pending_events": [Weighed(n=1), Priced(n=2)]}

    return build(look_up=look_up)


def looking_up(
    argument: int = 7,
    calls: str = "ps",
    events: tuple[DomainEvent, ...] = (Weighed(n=1), Priced(n=2)),
    **kept: Any,
) -> Graph:
    async def look_up(state: State) -> dict[str, Any]:
        step = current_step()
        total = 0
        for call in calls:
            name, function = ("price", price) if call == "p" else ("stock", stock)
            kind = kept.get("effect_class", IDEMPOTENT) if call == "s" else IDEMPOTENT
            total += await step.effect(name, function, argument if call == "s" else 7, effect_class=kind)
        return {kept.get("key", "price"): kept.get("value", 77), "_pending_events": list(events)}

    return build(look_up=look_up)


@changed("look_up")
def a_changed_argument() -> Graph:
    return looking_up(argument=8)


@changed("look_up")
def a_dropped_call() -> Graph:
    return looking_up(calls="p")


@changed("look_up")
def an_added_call() -> Graph:
    return looking_up(calls="psp")


@changed("look_up")
def a_dropped_event() -> Graph:
    return looking_up(events=(Weighed(n=1),))


@changed("look_up")
def an_added_event() -> Graph:
    return looking_up(events=(Weighed(n=1), Priced(n=2), Priced(n=2)))


@changed("look_up")
def a_changed_payload() -> Graph:
    return looking_up(events=(Weighed(n=1), Priced(n=3)))


@changed("look_up")
def another_order_of_events() -> Graph:
    return looking_up(events=(Priced(n=2), Weighed(n=1)))


@changed("look_up")
def a_changed_value() -> Graph:
    return looking_up(value=78)


@changed("look_up")
def a_changed_key() -> Graph:
    return looking_up(key="answer")


@changed("look_up")
def another_effect_class() -> Graph:
    return looking_up(effect_class=SideEffectClass.EXTERNAL)


@changed("each")
def another_reducer() -> Graph:
    return build(state=Other)


@changed("sort")
def another_way_on() -> Graph:
    return build(gate=lambda state: "close")


@changed("choose")
def another_goto() -> Graph:
    def choose(state: State) -> Command[Any]:
        return Command(update={"mood": "calm"}, goto=[Send("each", {"order": n}) for n in range(2)])

    return build(choose=choose)


@changed("choose")
def another_order_of_branches() -> Graph:
    def choose(state: State) -> Command[Any]:
        return Command(update={"mood": "calm"}, goto=[Send("each", {"order": n}) for n in (2, 1, 0)])

    return build(choose=choose)


@changed("sort")
def a_removed_node() -> Graph:
    return build(sort=None)


@changed("sort")
def a_renamed_node() -> Graph:
    return build(sort=None, tidy=sort)


@changed("extra")
def a_new_edge() -> Graph:
    return with_edge()


@changed("ask")
def a_new_wait_before_the_old_one() -> Graph:
    async def ask(state: State) -> dict[str, Any]:
        step = current_step()
        said = await step.invoke("text.echo", {"text": "good day"}, version="^1")
        await step.signal("confirm")
        return {"reply": said["reply"], "answer": str(await step.signal("go"))}

    return build(ask=ask)


@changed("ask")
def a_new_question() -> Graph:
    async def ask(state: State) -> dict[str, Any]:
        step = current_step()
        await step.interrupt("May I?")
        said = await step.invoke("text.echo", {"text": "good day"}, version="^1")
        return {"reply": said["reply"], "answer": str(await step.signal("go"))}

    return build(ask=ask)


def asking(capability: str = "text.echo", text: str = "good day", version: str = "^1") -> Graph:
    async def ask(state: State) -> dict[str, Any]:
        step = current_step()
        said = await step.invoke(capability, {"text": text}, version=version)
        return {"reply": said["reply"], "answer": str(await step.signal("go"))}

    return build(ask=ask)


@changed("ask")
def another_capability_version() -> Graph:
    return asking(version="^2")


@changed("ask")
def another_capability() -> Graph:
    return asking("text.upper")


@changed("ask")
def another_input() -> Graph:
    return asking(text="good night")


@changed("each")
def chance() -> Graph:
    return build(each=lambda state: {"items": [random.random()]})


@changed("close")
def an_error() -> Graph:
    def close(state: State) -> dict[str, Any]:
        raise ValueError("not any more")

    return build(close=close)


@changed("look_up")
def a_swallowed_difference() -> Graph:
    async def look_up(state: State) -> dict[str, Any]:
        try:
            await current_step().effect("price", price, 8, effect_class=IDEMPOTENT)
        except Exception:
            return {"price": 77, "_pending_events": [Weighed(n=1), Priced(n=2)]}
        return {}

    return build(look_up=look_up)


async def test_a_run_is_as_recorded_with_the_code_that_made_it(history: RecordedRun) -> None:
    verdict = await verify(build(), history)
    assert verdict.difference is None
    assert (verdict.steps, verdict.status) == (8, "completed")


@pytest.mark.parametrize(("node", "graph"), MUTATIONS)
async def test_a_change_is_found_and_its_node_named(
    history: RecordedRun, node: str, graph: Callable[[], Graph]
) -> None:
    called = CALLED.copy()
    difference = (await verify(graph(), history)).difference
    assert difference is not None
    assert difference.node == node, str(difference)
    assert difference.recorded != difference.now
    assert called == CALLED, "nothing is performed"


async def test_a_changed_log_message_or_comment_is_no_difference(history: RecordedRun) -> None:
    async def look_up(state: State) -> dict[str, Any]:
        print("a line more")  # and a comment more
        step = current_step()
        cost = await step.effect("price", price, state["order"], effect_class=IDEMPOTENT)
        left = await step.effect("stock", stock, state["order"], effect_class=IDEMPOTENT)
        return {"_pending_events": [Weighed(n=1), Priced(n=2)], "price": left + cost}

    assert (await verify(build(look_up=look_up), history)).is_same


async def test_a_history_is_the_same_after_a_round_trip_through_a_file(history: RecordedRun) -> None:
    again = load_history(dump_history(history))
    assert dump_history(again) == dump_history(history)
    assert (await verify(build(), again)).is_same
