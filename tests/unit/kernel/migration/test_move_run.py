"""An open run is moved to a new version of its graph, and goes on there: nothing is done twice or lost."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from datetime import date
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import ApprovalAnswered, SideEffectClass
from noesium_stream.kernel import Migration, current_step
from noesium_stream.kernel.recording.fork import last_step
from noesium_stream.kernel.recording.recorded_run import RecordedEvent, RecordedRun
from tests.support.journal import RUN_ID, ListJournal
from tests.support.moves import begun, execute, move, moved, versions

CALLED: Counter[str] = Counter()


class Old(TypedDict, total=False):
    n: int
    items: Annotated[list[Any], operator.add]


class New(TypedDict, total=False):
    count: int
    items: Annotated[list[Any], operator.add]


@pytest.fixture(autouse=True)
def _clean() -> None:
    CALLED.clear()


def outside(name: str) -> str:
    CALLED[name] += 1
    return name


async def call(name: str) -> str:
    safe = SideEffectClass.IDEMPOTENT
    found: str = await current_step().effect(name, outside, name, effect_class=safe)
    return found


async def first(state: Any) -> Any:
    return {"items": [await call("first")]}


async def second(state: Any) -> Any:
    return {"items": [await call("second")]}


async def check(state: Any) -> Any:
    return {"items": [await call("check")]}


async def third(state: Any) -> Any:
    return {"items": [await call("third") + str(state.get("n", state.get("count")))]}


def counted(state: dict[str, Any]) -> dict[str, Any]:
    return {"count": state.pop("n") * 10, **state}


def chain(schema: type, **nodes: Any) -> StateGraph[Any, Any, Any, Any]:
    builder = StateGraph(schema)
    before = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    builder.add_edge(before, END)
    return builder


OLD = chain(Old, first=first, second=second, third=third)
NEW = chain(New, first=first, second=second, check=check, third=third)
NEWEST = chain(New, first=first, second=second, check=check, third=third, last=first)
GIVEN = {"n": 1, "items": []}
COMMITS = 9
"""More than a run of OLD needs."""


def done(log: list[EventEnvelope]) -> set[str]:
    """The names of the effects that have a result on the log."""
    names = {e.payload["effect_id"]: e.payload["name"] for e in log if e.event_type == "effect.requested"}
    return {names[e.payload["effect_id"]] for e in log if e.event_type == "effect.completed"}


def check_log(log: list[EventEnvelope]) -> None:
    """No step ends twice, and no step's end is recorded under two keys."""
    ended = [
        (e.payload["step"], e.payload["task_path"]) for e in log if e.event_type == "kernel.node.completed"
    ]
    assert len(ended) == len(set(ended))
    keys = [event.idempotency_key for event in log if event.idempotency_key is not None]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("reaches_log", [False, True])
@pytest.mark.parametrize("dies_at", range(1, COMMITS))
async def test_a_run_goes_on_with_the_new_graph_wherever_it_died(dies_at: int, reaches_log: bool) -> None:
    log = begun(OLD)
    if await execute(OLD, log, GIVEN, dies_at=dies_at, reaches_log=reaches_log) is not None:
        assert dies_at > COMMITS - 3
        return
    before = done(log)
    final = await move(versions(NEW, Migration(OLD, state=counted)), log, GIVEN)
    (payload,) = moved(log)
    assert payload["state"]["count"] == final["count"] == 10
    assert (payload["from_graph"]["version"], payload["to_graph"]["version"]) == ("1.0.0", "2.0.0")
    assert [item for item in final["items"] if item != "check"] == ["first", "second", final["items"][-1]]
    assert all(CALLED[name] == 1 for name in before)
    check_log(log)
    ended = {e.payload["node"] for e in log if e.event_type == "kernel.node.completed"}
    # `third` had been reached, or `check` comes before it.
    assert ("check" in ended) == (payload["next"] in (["first"], ["second"]))
    assert final["items"][-1] in ("third10", "third1")


@pytest.mark.parametrize("reaches_log", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 9))
async def test_a_move_that_dies_at_any_commit_is_made_once(dies_at: int, reaches_log: bool) -> None:
    log = begun(OLD)
    await execute(OLD, log, GIVEN, dies_at=4, reaches_log=True)
    before = done(log)
    moves = versions(NEW, Migration(OLD, state=counted))
    await move(moves, log, GIVEN, dies_at=dies_at, reaches_log=reaches_log)
    final = await move(moves, log, GIVEN)
    assert len(moved(log)) == 1
    assert final == {"count": 10, "items": ["first", "second", "check", "third10"]}
    assert before
    assert all(CALLED[name] == 1 for name in before)
    check_log(log)


@pytest.mark.parametrize("reaches_log", [False, True])
async def test_versions_are_gone_through_one_after_the_other_in_one_commit(reaches_log: bool) -> None:
    def doubled(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "count": state["count"] * 2}

    log = begun(OLD)
    await execute(OLD, log, GIVEN, dies_at=3, reaches_log=True)
    line = (Migration(OLD, state=counted), Migration(NEW, "2.0.0", state=doubled))
    moves = versions(NEWEST, *line, version="3.0.0")
    await move(moves, log, GIVEN, dies_at=1, reaches_log=reaches_log)
    assert len(moved(log)) == (2 if reaches_log else 0)
    final = await move(moves, log, GIVEN)
    assert [payload["to_graph"]["version"] for payload in moved(log)] == ["2.0.0", "3.0.0"]
    assert final["count"] == 20
    assert final["items"] == ["first", "second", "check", "third20", "first"]


async def test_a_run_that_was_moved_is_moved_again_from_where_it_is_then() -> None:
    log = begun(OLD)
    await execute(OLD, log, GIVEN, dies_at=4, reaches_log=True)
    await move(versions(NEW, Migration(OLD, state=counted)), log, GIVEN, dies_at=6)
    line = (Migration(OLD, state=counted), Migration(NEW, "2.0.0"))
    final = await move(versions(NEWEST, *line, version="3.0.0"), log, GIVEN)
    steps = [payload["step"] for payload in moved(log)]
    assert len(steps) == 2
    assert steps[0] < steps[1]
    assert final["items"] == ["first", "second", "check", "third10", "first"]
    check_log(log)


async def test_a_run_at_its_end_ends_with_the_state_that_it_was_moved_to() -> None:
    log = begun(OLD)
    await execute(OLD, log, GIVEN)
    final = await move(versions(NEW, Migration(OLD, state=counted)), log, GIVEN)
    assert final == {"count": 10, "items": ["first", "second", "third1"]}
    assert moved(log)[0]["next"] == []
    assert CALLED == {"first": 1, "second": 1, "third": 1}


async def test_a_run_that_has_done_nothing_begins_with_the_new_graph() -> None:
    log = begun(OLD)
    final = await move(versions(NEW, Migration(OLD, state=counted)), log, GIVEN)
    assert (moved(log)[0]["step"], moved(log)[0]["next"]) == (1, ["first"])
    assert final["items"] == ["first", "second", "check", "third10"]


async def test_types_of_the_state_are_kept() -> None:
    class Dated(TypedDict, total=False):
        n: Any
        items: Annotated[list[Any], operator.add]

    def dated(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "n": (date(2026, 1, 2), frozenset({state["n"]}))}

    async def look(state: Any) -> Any:
        return {"items": [state["n"]]}

    old, new = chain(Old, first=first, third=third), chain(Dated, first=first, third=look)
    log = begun(old)
    await execute(old, log, GIVEN, dies_at=3)
    final = await move(versions(new, Migration(old, state=dated)), log, GIVEN)
    assert final["items"][-1] == (date(2026, 1, 2), frozenset({1}))


async def test_an_open_question_is_answered_after_the_move() -> None:
    async def ask(state: Any) -> Any:
        CALLED["body"] += 1
        await call("before")
        answer = await current_step().interrupt("go on?")
        return {"items": [answer.value, await call("after")]}

    old, new = chain(Old, first=first, ask=ask), chain(New, first=first, ask=ask, third=third)
    log = begun(old)
    await execute(old, log, GIVEN, dies_at=6, reaches_log=True)
    (asked,) = [event for event in log if event.event_type == "approval.requested"]
    moves = versions(new, Migration(old, state=counted))
    await move(moves, log, GIVEN, dies_at=1, reaches_log=True)
    assert len(moved(log)) == 1
    journal = ListJournal(log)
    answer = ApprovalAnswered(
        run_id=RUN_ID,
        approval_id=asked.payload["approval_id"],
        fingerprint=asked.payload["fingerprint"],
        approved=True,
        value="yes",
        answered_by="me",
    )
    journal.stage(answer, trace=journal.identity.trace, causation_id=None)
    await journal.commit()
    final = await move(moves, log, GIVEN)
    assert final["items"] == ["first", "yes", "after", "third10"]
    assert [event.event_type for event in log].count("approval.requested") == 1
    # Its body has run once in each version: planning the move runs none.
    assert CALLED == {"first": 1, "before": 1, "after": 1, "third": 1, "body": 2}


def fork(**last: Any) -> StateGraph[Any, Any, Any, Any]:
    """`first`, then `left` and `right` side by side, joined before `end`."""

    async def left(state: Any) -> Any:
        return {"items": [await call("left")]}

    async def right(state: Any) -> Any:
        return {"items": [await call("right")]}

    builder = StateGraph(New if last else Old)
    for name, node in {"first": first, "left": left, "right": right, "end": third, **last}.items():
        builder.add_node(name, node)
    builder.add_edge(START, "first")
    builder.add_edge("first", "left")
    builder.add_edge("first", "right")
    builder.add_edge(["left", "right"], "end")
    for name in last:
        builder.add_edge("end", name)
    return builder


@pytest.mark.parametrize("reaches_log", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 12))
async def test_branches_side_by_side_are_each_finished_once(dies_at: int, reaches_log: bool) -> None:
    old, new = fork(), fork(check=check)
    log = begun(old)
    if await execute(old, log, GIVEN, dies_at=dies_at, reaches_log=reaches_log) is not None:
        assert dies_at > 6
        return
    before = done(log)
    final = await move(versions(new, Migration(old, state=counted)), log, GIVEN)
    assert final["items"][:3] == ["first", "left", "right"]
    assert [item for item in final["items"][3:] if item != "check"] in (["third10"], ["third1"])
    assert final["items"].count("check") == (moved(log)[0]["next"] != [])
    assert all(CALLED[name] == 1 for name in before)
    check_log(log)


async def test_a_long_run_resumes_at_a_checkpoint_that_is_folded_from_the_move() -> None:
    def again(state: Any) -> str:
        return "step" if len(state["items"]) < 40 else END

    async def step(state: Any) -> Any:
        CALLED["step"] += 1
        return {"items": [len(state["items"])]}

    def loop(schema: type) -> StateGraph[Any, Any, Any, Any]:
        builder = StateGraph(schema)
        builder.add_node("step", step)
        builder.add_edge(START, "step")
        builder.add_conditional_edges("step", again)
        return builder

    old, new = loop(Old), loop(New)
    log = begun(old)
    await execute(old, log, GIVEN, dies_at=16)
    moves = versions(new, Migration(old, state=counted), walk_steps=3)
    await move(moves, log, GIVEN, dies_at=12)
    final = await move(moves, log, GIVEN)
    assert final == {"count": 10, "items": list(range(40))}
    steps = [e.payload["step"] for e in log if e.event_type == "kernel.node.completed"]
    assert steps == list(range(1, 41))
    assert moved(log)[0]["step"] == 16


async def test_a_node_that_comes_next_takes_its_new_name() -> None:
    old, new = chain(Old, first=first, third=third), chain(New, first=first, end=third)
    log = begun(old)
    await execute(old, log, GIVEN, dies_at=3, reaches_log=True)
    final = await move(versions(new, Migration(old, state=counted, nodes={"third": "end"})), log, GIVEN)
    assert moved(log)[0]["next"] == ["end"]
    assert final["items"] == ["first", "third10"]


async def test_a_finished_branch_that_goes_on_by_command_is_followed_in_the_new_graph() -> None:
    async def left(state: Any) -> Command[Any]:
        return Command(update={"items": ["left"]}, goto="third")

    def forked(schema: type) -> StateGraph[Any, Any, Any, Any]:
        builder = StateGraph(schema)
        builder.add_node("left", left, destinations=("third",))
        builder.add_node("second", second)
        builder.add_node("third", third)
        builder.add_edge(START, "left")
        builder.add_edge(START, "second")
        return builder

    old, new = forked(Old), forked(New)
    log = begun(old)
    await execute(old, log, GIVEN, dies_at=2, reaches_log=True)
    assert [e.payload["node"] for e in log if e.event_type == "kernel.node.completed"] == ["left"]
    final = await move(versions(new, Migration(old, state=counted)), log, GIVEN)
    assert final["items"] == ["left", "second", "third10"]


def joined(schema: type, *, extra: bool = False, deferred: bool = False) -> StateGraph[Any, Any, Any, Any]:
    """`left` beside `right` and `slow`, all joined before `third`."""

    async def left(state: Any) -> Any:
        return {"items": [await call("left")]}

    async def right(state: Any) -> Any:
        return {"items": [await call("right")]}

    async def slow(state: Any) -> Any:
        return {"items": [await call("slow")]}

    builder = StateGraph(schema)
    builder.add_node("left", left)
    builder.add_node("right", right)
    builder.add_node("slow", slow)
    builder.add_node("third", third, defer=deferred)
    builder.add_edge(START, "left")
    builder.add_edge(START, "right")
    builder.add_edge("right", "slow")
    if deferred:
        builder.add_edge("left", "third")
    else:
        builder.add_edge(["left", "slow"], "third")
    if extra:
        builder.add_node("check", check)
        builder.add_edge("third", "check")
    return builder


@pytest.mark.parametrize("deferred", [False, True])
async def test_what_waits_for_others_waits_for_them_in_the_new_graph(deferred: bool) -> None:
    old, new = joined(Old, deferred=deferred), joined(New, extra=True, deferred=deferred)
    steps = set()
    for dies_at in range(1, 20):
        CALLED.clear()
        log = begun(old)
        if await execute(old, log, GIVEN, dies_at=dies_at, reaches_log=True) is not None:
            break
        before = done(log)
        final = await move(versions(new, Migration(old, state=counted)), log, GIVEN)
        (payload,) = moved(log)
        rest = ["third10", "check"] if payload["next"] else ["third1"]
        assert final["items"] == ["left", "right", "slow", *rest]
        assert all(CALLED[name] == 1 for name in before)
        steps.add(payload["step"])
        if payload["step"] == 2 and not deferred:
            assert payload["joins"] == {"join:left+slow:third": ["left"]}
        if payload["step"] == 2 and deferred:
            assert payload["deferred"] == ["third"]
        check_log(log)
    assert steps == {1, 2, 3, 4}


async def test_a_node_that_had_only_been_entered_takes_its_new_names() -> None:
    async def left(state: Any) -> Any:
        return {"items": [await call("left")]}

    async def late(state: Any) -> Any:
        for _ in range(200):
            await asyncio.sleep(0)
        return {"items": [await call("late")]}

    def pair(schema: type, name: str) -> StateGraph[Any, Any, Any, Any]:
        builder = StateGraph(schema)
        builder.add_node("left", left)
        builder.add_node(name, late)
        builder.add_node("third", third)
        builder.add_edge(START, "left")
        builder.add_edge(START, name)
        builder.add_edge(["left", name], "third")
        return builder

    old, middle, new = pair(Old, "one"), pair(New, "two"), pair(New, "three")
    log = begun(old)
    await execute(old, log, GIVEN, dies_at=3, reaches_log=True)
    entered = {e.payload["node"] for e in log if e.event_type == "kernel.node.entered"}
    assert (entered, done(log)) == ({"left", "one"}, {"left"})
    line = (
        Migration(old, state=counted, nodes={"one": "two"}),
        Migration(middle, "2.0.0", nodes={"two": "three"}),
    )
    final = await move(versions(new, *line, version="3.0.0"), log, GIVEN)
    assert final["items"] == ["left", "late", "third10"]
    assert [payload["next"] for payload in moved(log)] == [["left", "two"], ["left", "three"]]
    assert CALLED == {"left": 1, "late": 1, "third": 1}
    check_log(log)
    # What was begun under the old names keeps nobody from seeing that the run is past it.
    assert last_step(RecordedRun(tuple(map(RecordedEvent, log)))) == 2
