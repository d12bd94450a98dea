"""The hash of the state in every checkpoint: the same wherever the state is, another where it differs."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel

from noesium_stream.client.operate.fork import fork
from noesium_stream.errors import CommitUnknownError
from noesium_stream.event.standard import CheckpointCreated
from noesium_stream.kernel import Durability, DurableGraph
from noesium_stream.kernel.recording.recorded_run import RecordedEvent, RecordedRun
from noesium_stream.kernel.state import state_hash
from noesium_stream.kernel.state.state_hash import StateHash, state_channels
from tests.support.graphs import running
from tests.support.journal import ListJournal
from tests.support.reading import PATIENCE_S
from tests.support.replays import Graph, journal_of, recorded, verify

LAST = 6


class Mark(BaseModel):
    name: str
    tags: set[str] = set()
    parts: dict[str, frozenset[int]] = {}


@dataclass
class Point:
    x: float
    seen: frozenset[str] = frozenset()


def extend(left: dict[str, list[Any]], right: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Changes in place what it is given, and what lies in it."""
    for name, items in right.items():
        left.setdefault(name, []).extend(items)
    return left


def grouped(left: dict[str, list[Any]], right: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: left.get(name, []) + right.get(name, []) for name in {*left, *right}}


class Typed(TypedDict, total=False):
    n: int
    items: Annotated[list[Any], operator.add]
    groups: Annotated[dict[str, list[Any]], grouped]
    latest: Any


@dataclass
class Data:
    n: int = 0
    items: Annotated[list[Any], lambda left, right: [*left, *right]] = field(default_factory=list)
    point: Point | None = None


class Model(BaseModel):
    n: int = 0
    items: Annotated[list[Mark], operator.add] = []
    latest: Mark | None = None


class Chat(TypedDict, total=False):
    n: int
    messages: Annotated[list[AnyMessage], add_messages]


def typed(state: Typed) -> dict[str, Any]:
    n = state["n"] + 1
    moment = datetime(2026, 1, n, tzinfo=UTC)
    latest = {"when": moment, "sum": Decimal(n), "set": {f"{n}", "a", "b", "c"}, 7: (1, 2.0)}
    return {"n": n, "items": [n, {"n": n}], "groups": {f"{n % 2}": [n]}, "latest": latest}


def data(state: Data) -> dict[str, Any]:
    n = state.n + 1
    return {"n": n, "items": [{"n": n}], "point": Point(float(n), frozenset({"x", "y", f"{n}"}))}


def model(state: Model) -> dict[str, Any]:
    n = state.n + 1
    mark = Mark(name=f"{n}", tags={"red", "green", "blue", f"{n}"}, parts={"p": frozenset({n, 100, 7})})
    return {"n": n, "items": [mark], "latest": mark}


def chat(state: Chat) -> dict[str, Any]:
    n = state["n"] + 1
    said: list[Any] = [HumanMessage(f"question {n}"), {"role": "assistant", "content": f"answer {n}"}]
    if n == 4:
        said.append(AIMessage("the first, said again", id=state["messages"][0].id))
    return {"n": n, "messages": said}


def loop(kind: type[Any], node: Callable[[Any], Any]) -> Graph:
    graph: Graph = StateGraph(kind)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_conditional_edges(
        "node", lambda state: END if (state["n"] if isinstance(state, dict) else state.n) >= LAST else "node"
    )
    return graph


KINDS: dict[str, tuple[type[Any], Callable[[Any], Any], Any]] = {
    "typed": (Typed, typed, {"n": 0, "items": [], "groups": {}}),
    "dataclass": (Data, data, {"n": 0}),
    "pydantic": (Model, model, {"n": 0}),
    "messages": (Chat, chat, {"n": 0, "messages": []}),
}


def hashes(journal: ListJournal) -> dict[int, str]:
    created = [event.payload for event in journal.log if event.event_type == "kernel.checkpoint.created"]
    assert len(created) == len({payload["step"] for payload in created})
    return {payload["step"]: payload["state_hash"] for payload in created}


async def execute(kind: str, journal: ListJournal, **options: Any) -> dict[int, str]:
    state, node, initial = KINDS[kind]
    await DurableGraph(loop(state, node).compile(), **options).execute(journal, deepcopy(initial))
    await journal.commit()
    await journal.commit()
    return hashes(journal)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_superstep_has_a_hash_and_two_runs_have_the_same(kind: str) -> None:
    found = await execute(kind, ListJournal())
    assert list(found) == list(range(1, LAST + 1))
    assert len(set(found.values())) == LAST, "every step changes the state"
    for durability in Durability:
        assert await execute(kind, ListJournal(), durability=durability) == found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("walk_steps", [1, 1000])
async def test_hashes_are_the_same_after_a_death_anywhere_walked_and_folded(
    kind: str, walk_steps: int
) -> None:
    options: dict[str, Any] = {"durability": Durability.SYNC, "walk_steps": walk_steps}
    whole = ListJournal()
    expected = await execute(kind, whole, **options)
    for dies_at in range(1, whole.commits + 1):
        dying = ListJournal(dies_at=dies_at, reaches_log=True)
        with pytest.raises(CommitUnknownError):
            await execute(kind, dying, **options)
        assert await execute(kind, ListJournal(dying.log), **options) == expected


class Changed(TypedDict, total=False):
    n: int
    groups: Annotated[dict[str, list[Any]], extend]


async def whole_run(graph: Any, journal: ListJournal) -> None:
    await DurableGraph(graph, durability=Durability.SYNC).execute(journal, {"groups": {"0": []}})
    await journal.commit()


async def test_a_reducer_that_changes_what_it_is_given_makes_no_difference() -> None:
    # Without conditional edges: LangGraph reads the state for those by calling reducers once more.
    graph: Graph = StateGraph(Changed)
    before = START
    for number in range(LAST):
        graph.add_node(f"n{number}", lambda state, n=number: {"n": n, "groups": {f"{n % 2}": [{"n": n}]}})
        graph.add_edge(before, f"n{number}")
        before = f"n{number}"
    compiled = graph.compile()
    whole = ListJournal()
    await whole_run(compiled, whole)
    assert len(set(hashes(whole).values())) == LAST
    for dies_at in range(1, whole.commits):
        dying = ListJournal(dies_at=dies_at, reaches_log=True)
        with pytest.raises(CommitUnknownError):
            await whole_run(compiled, dying)
        resumed = ListJournal(dying.log)
        await DurableGraph(compiled, walk_steps=1).execute(resumed, {"groups": {"0": []}})
        await resumed.commit()
        assert hashes(resumed) == hashes(whole)


def test_hashes_are_the_same_under_every_hash_seed() -> None:
    code = (
        "import asyncio\n"
        "from tests.support.journal import ListJournal\n"
        "from tests.unit.kernel.state.test_state_hash import KINDS, execute\n"
        "for kind in KINDS:\n"
        "    journal = ListJournal()\n"
        "    print(kind, asyncio.run(execute(kind, journal)))\n"
        "    print([event.payload['delta'] for event in journal.history.completed.values()])\n"
    )
    found = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[4])},
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1, "\n".join(sorted(found))


async def test_what_a_node_changes_in_place_is_no_part_of_the_history() -> None:
    def changing(state: Typed) -> dict[str, Any]:
        returned = typed(state)
        if state.get("latest"):
            state["latest"]["when"] = None
        for item in state["items"]:
            if isinstance(item, dict):
                item["changed"] = True
        return returned

    journal = ListJournal()
    await DurableGraph(loop(Typed, changing).compile()).execute(journal, deepcopy(KINDS["typed"][2]))
    await journal.commit()
    assert hashes(journal) == await execute("typed", ListJournal())


async def test_each_message_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def counting(value: Any, path: str) -> Any:
        if isinstance(value, HumanMessage | AIMessage):
            seen.append(id(value))
        return encode(value, path)

    encode = state_hash.encode
    monkeypatch.setattr(state_hash, "encode", counting)
    await execute("messages", ListJournal())
    assert len(seen) == 2 * LAST + 1, "two a turn, and the one that was said again"


def test_a_reducer_that_only_joins_is_told_from_one_that_may_change_what_it_is_given() -> None:
    def last_ones(left: list[Any], right: list[Any]) -> list[Any]:
        return add_messages(left, right)[-3:]  # type: ignore[arg-type, index, return-value]

    def set_first(left: list[Any], right: list[Any]) -> list[Any]:
        left[0] = right
        return left

    def into_each(left: list[Any], right: list[Any]) -> list[Any]:
        for item in left:
            item += right
        return left

    def through_another(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        return extend(left, right)

    def keeps(reducer: Any, kind: type[Any] = list) -> bool:
        state = TypedDict("State", {"items": Annotated[kind, reducer]})  # type: ignore[misc,valid-type] # noqa: UP013
        graph: Graph = StateGraph(state)
        graph.add_node("node", lambda state: {})
        graph.add_edge(START, "node")
        return state_channels(graph.compile())["items"]

    assert keeps(operator.add)
    assert keeps(add_messages)
    assert keeps(last_ones)
    assert keeps(lambda left, right: (left or []) + right)
    assert keeps(lambda left, right: {**left, **right}, dict)
    for reducer in (set_first, into_each, extend, through_another, lambda left, right: left.append(right)):
        assert not keeps(reducer), reducer.__name__


def test_numbers_that_json_writes_alike_are_alike_and_kinds_are_not() -> None:
    def hash_of(value: Any) -> str:
        return StateHash({"value": True}).take(lambda names: {"value": value}, ())

    assert hash_of(1) == hash_of(1.0)
    assert hash_of([{"n": 2.0}, 0.5]) == hash_of([{"n": 2}, 0.5])
    assert hash_of({1: "a", 2: "b"}) == hash_of({2: "b", 1: "a"})
    assert hash_of({1.0, 20}) == hash_of({20.0, 1})
    different = [None, True, 1, "1", [1], (1,), {"1": 1}, {1: 1}, {1}, [[1]], [], {}, "", [1, "1"], ["1", 1]]
    assert len({hash_of(value) for value in different}) == len(different)
    assert hash_of(object()) == hash_of(float("nan")), "what cannot be recorded is not looked at"


def test_a_list_is_hashed_as_if_it_were_seen_for_the_first_time_whatever_became_of_it() -> None:
    a, b, c = {"n": 1}, {"n": 2}, {"n": 3}
    kept = StateHash({"items": True})
    for items in ([], [a], [a, b], [a, b, "x"], [b, "x", c], [b], [a, b, c], [c, b, a], "none", [c, c], []):
        fresh = StateHash({"items": True})
        found = [each.take(lambda names, now=items: {"items": now}, ()) for each in (kept, fresh)]
        assert found[0] == found[1], items


def branches(reducer: Any) -> Graph:
    """`marks` is read by no node, and overwritten before the end."""
    state = TypedDict("state", {"n": int, "marks": Annotated[list[int], reducer]})  # type: ignore[misc] # noqa: UP013
    graph: Graph = StateGraph(state)
    graph.add_node("one", lambda state: {"marks": [2]})
    graph.add_node("two", lambda state: {"marks": [1]})
    graph.add_node("three", lambda state: {"n": 1})
    graph.add_node("last", lambda state: {"marks": {"__overwrite__": []}})
    for source, target in [(START, "one"), ("one", "two"), ("two", "three"), ("three", "last")]:
        graph.add_edge(source, target)
    return graph


async def test_a_changed_reducer_is_found_at_its_step_though_no_node_reads_the_key(tmp_path: Path) -> None:
    run = await recorded(branches(operator.add), tmp_path, n=0, marks=[])
    assert (await verify(branches(operator.add), run)).is_same
    found = (await verify(branches(lambda left, right: right + left), run)).difference
    assert found is not None
    assert (found.step, found.node, found.what) == (2, "two", "the state after it differs")
    old = [
        RecordedEvent(replace_payload(item.event), item.received) if is_checkpoint(item) else item
        for item in run.events
    ]
    earlier = RecordedRun(tuple(old), run.graph)
    assert (await verify(branches(operator.add), earlier)).is_same
    assert (await verify(branches(lambda left, right: right + left), earlier)).is_same, "nothing to compare"


def is_checkpoint(item: RecordedEvent) -> bool:
    return item.event.event_type == "kernel.checkpoint.created"


def replace_payload(event: Any) -> Any:
    payload = {name: value for name, value in event.payload.items() if name != "state_hash"}
    return event.replace(payload={**payload, "parent_id": None})


async def test_the_state_after_the_last_superstep_is_compared_as_well(tmp_path: Path) -> None:
    def hidden(last: Any) -> Graph:
        graph: Graph = StateGraph(Typed, output_schema=TypedDict("Out", {"n": int}))
        graph.add_node("only", lambda state: {"groups": {"a": [1]}})
        graph.add_edge(START, "only")
        return graph

    run = await recorded(hidden(1), tmp_path, n=0, groups={"a": [0]})
    changed = StateGraph(
        TypedDict("T", {"n": int, "groups": Annotated[dict[str, Any], operator.or_]}),  # type: ignore[misc]
        output_schema=TypedDict("Out", {"n": int}),
    )
    changed.add_node("only", lambda state: {"groups": {"a": [1]}})
    changed.add_edge(START, "only")
    found = (await verify(changed, run)).difference
    assert found is not None
    assert (found.step, found.what) == (1, "the state after it differs")


async def test_a_fork_has_the_hashes_of_the_run_that_it_shares_steps_with(tmp_path: Path) -> None:
    state, node, initial = KINDS["typed"]
    async with running(loop(state, node), tmp_path) as client:
        run = await client.start("sample", initial)
        await run.result(timeout=PATIENCE_S)
        branch = await fork(client, run, 3, {})
        await branch.result(timeout=PATIENCE_S)
        first, second = [
            {
                item.event.payload["step"]: item.event.payload["state_hash"]
                for item in (await journal_of(each)).events
                if is_checkpoint(item)
            }
            for each in (run, branch)
        ]
    assert list(second) == [4, 5, 6]
    assert {step: first[step] for step in (1, 2, 3)} | second == first


def test_the_usual_parent_of_a_checkpoint_is_not_written() -> None:
    usual = CheckpointCreated(run_id="r", checkpoint_id="r/2", parent_id="r/1", step=2, nodes=["a"])
    assert "parent_id" not in usual.payload()
    assert CheckpointCreated.model_validate(usual.payload()) == usual
    forked = usual.model_copy(update={"parent_id": "other/1"})
    assert CheckpointCreated.model_validate(forked.payload()) == forked
    first = CheckpointCreated(run_id="r", checkpoint_id="r/1", step=1)
    assert CheckpointCreated.model_validate(first.payload()).parent_id is None
