"""A run that cannot be moved safely stays as it is, with a reason that names it; nothing is written."""

from __future__ import annotations

import itertools
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import UntrackedValue
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send
from pydantic import BaseModel

from noesium_stream.errors import ConfigError, MigrationError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.kernel import Migration
from tests.support.moves import Builder, begun, execute, move, moved, versions
from tests.unit.kernel.migration.test_move_run import (
    CALLED,
    GIVEN,
    NEW,
    OLD,
    New,
    Old,
    chain,
    counted,
    done,
    first,
    joined,
    second,
    third,
)


async def refused(
    old: Builder, new: Builder, log: list[EventEnvelope], match: str, **given: Any
) -> MigrationError:
    """Try to move a run; it must be refused for this reason, and its log stay as it is."""
    before = len(log)
    with pytest.raises(MigrationError, match=match) as caught:
        await move(versions(new, Migration(old, **{"state": counted, **given})), log, GIVEN)
    assert len(log) == before
    assert caught.value.hint
    return caught.value


async def ran(builder: Builder, commits: int) -> list[EventEnvelope]:
    """The log of a run that died after so many commits."""
    CALLED.clear()
    log = begun(builder)
    await execute(builder, log, GIVEN, dies_at=commits, reaches_log=True)
    return log


def node_under_way(log: list[EventEnvelope]) -> str:
    return str(next(e for e in reversed(log) if e.event_type == "kernel.node.entered").payload["node"])


async def test_a_node_that_has_called_something_keeps_its_name() -> None:
    new = chain(New, first=first, changed=second, third=third)
    log = await ran(OLD, 4)
    assert node_under_way(log) == "second"
    nodes = {"second": "changed"}
    await refused(
        OLD, new, log, r"The node second is under way in step 2, and is called changed", nodes=nodes
    )
    # The old version finishes the step; then it can be moved.
    await execute(OLD, log, GIVEN, dies_at=3, reaches_log=True)
    assert node_under_way(log) == "third"
    final = await move(versions(new, Migration(OLD, state=counted, nodes=nodes)), log, GIVEN)
    assert final["items"] == ["first", "second", "third10"]
    assert [CALLED[name] for name in ("first", "second")] == [1, 1]


@pytest.mark.parametrize("commits", [3, 4])
async def test_a_node_that_comes_next_and_is_gone_is_named(commits: int) -> None:
    new = chain(New, first=first, third=third)
    await refused(OLD, new, await ran(OLD, commits), r"The node second is to run next, and sample 2\.0\.0")


async def test_two_nodes_that_become_one_are_refused() -> None:
    def wide(schema: type, *names: str) -> Builder:
        builder = StateGraph(schema)
        for name in names:
            builder.add_node(name, first)
            builder.add_edge(START, name)
        return builder

    old, new = wide(Old, "left", "right"), wide(New, "one")
    nodes = {"left": "one", "right": "one"}
    await refused(old, new, begun(old), "The nodes left and right .* it would run once", nodes=nodes)


async def test_tasks_of_a_send_are_not_moved() -> None:
    def spread(state: Any) -> list[Send]:
        return [Send("second", {"n": n, "items": []}) for n in range(2)]

    def sending(schema: type) -> Builder:
        builder = StateGraph(schema)
        builder.add_node("first", first)
        builder.add_node("second", second)
        builder.add_node("third", third)
        builder.add_edge(START, "first")
        builder.add_conditional_edges("first", spread, ["second"])
        builder.add_edge("second", "third")
        return builder

    old, new = sending(Old), sending(New)
    for commits in itertools.count(1):
        log = await ran(old, commits)
        newest = max((e.payload["step"] for e in log if e.event_type == "kernel.node.entered"), default=0)
        ended = [e.payload["step"] for e in log if e.event_type == "kernel.node.completed"]
        if newest == 3 or 3 in ended:
            break
        if 1 in ended and ended.count(2) < 2:
            await refused(old, new, log, r"The node second is run by a Send in step 2")
    final = await move(versions(new, Migration(old, state=counted)), log, GIVEN)
    assert final["items"] == ["first", "second", "second", "third10"]


async def test_a_graph_inside_a_node_that_is_under_way_must_be_the_same() -> None:
    def outer(schema: type, **inside: Any) -> Builder:
        builder = StateGraph(schema)
        builder.add_node("inner", chain(Inner, **inside).compile())
        builder.add_node("third", third)
        builder.add_edge(START, "inner")
        builder.add_edge("inner", "third")
        return builder

    class Inner(TypedDict, total=False):
        items: Annotated[list[Any], operator.add]

    old = outer(Old, first=first, second=second)
    log = await ran(old, 4)
    assert done(log) == {"first"}
    other = outer(New, first=first, check=second)
    await refused(old, other, log, r"The node inner is under way in step 1, and the graph inside of it")
    same = outer(New, first=first, second=second)
    final = await move(versions(same, Migration(old, state=counted)), log, GIVEN)
    assert final["items"] == ["first", "second", "third10"]
    assert CALLED["first"] == 1


async def test_a_join_that_somebody_waits_at_must_be_there() -> None:
    log = await ran(joined(Old), 6)
    assert done(log) >= {"left", "right"}
    new = StateGraph(New)
    for name in ("left", "right", "slow", "third"):
        new.add_node(name, third)
    new.add_edge(START, "left")
    new.add_edge("left", "right")
    new.add_edge("right", "slow")
    new.add_edge("slow", "third")
    match = r"The node left has arrived at the join of left, slow before third, which"
    await refused(joined(Old), new, log, match)


async def test_a_new_join_must_not_wait_for_what_has_run() -> None:
    log = await ran(OLD, 4)
    new = StateGraph(New)
    for name in ("first", "second", "third"):
        new.add_node(name, third)
    new.add_edge(START, "first")
    new.add_edge("first", "second")
    new.add_edge(["first", "second"], "third")
    await refused(OLD, new, log, "joins first, second before third; first has run already")


async def test_a_finished_branch_must_fit_the_new_graph() -> None:
    async def left(state: Any) -> Command[Any]:
        return Command(update={"n": 2}, goto="third")

    def forked(schema: type, *names: str) -> Builder:
        builder = StateGraph(schema)
        builder.add_node("left", left, destinations=names[-1:])
        for name in ("second", *names):
            builder.add_node(name, second)
        builder.add_edge(START, "left")
        builder.add_edge(START, "second")
        return builder

    class Both(TypedDict, total=False):
        n: int
        count: int
        items: Annotated[list[Any], operator.add]

    old = forked(Old, "third")
    log = await ran(old, 2)
    await refused(old, forked(New, "third"), log, "The node left has ended .* writes n, which")
    await refused(old, forked(Both, "fourth"), log, "The node left has ended .* goes on to third, which")


@pytest.mark.parametrize(
    ("state", "match"),
    [
        (lambda state: 1 / 0, "test_move_run_refused:<lambda> from sample 1.0.0 .* fails: ZeroDivisionError"),
        (lambda state: [], "gives list, and a state is a dict"),
        (lambda state: {"other": 1}, "has other, which the state of sample 2.0.0 .* does not have"),
        (lambda state: {"count": object()}, r"fails: state\.count is of type object"),
        (lambda state: {"count": float("nan")}, r"fails: state\.count is nan"),
        (lambda state: {"items": ["x" * 2_000_000]}, "fails: .*bytes as JSON"),
        (None, "The state has n, which the state of sample 2.0.0"),
    ],
)
async def test_a_bad_migration_function_is_named(state: Any, match: str) -> None:
    await refused(OLD, NEW, await ran(OLD, 4), match, state=state)


async def test_a_migration_function_gives_the_same_twice() -> None:
    numbers = itertools.count()
    await refused(
        OLD,
        NEW,
        await ran(OLD, 4),
        "not deterministic: .* another count",
        state=lambda _: {"count": next(numbers)},
    )


async def test_a_migration_function_that_changes_what_it_is_given_is_given_a_copy() -> None:
    def emptied(state: dict[str, Any]) -> dict[str, Any]:
        items = list(state["items"])
        state["items"].clear()
        return {"count": len(items), "items": items}

    final = await move(versions(NEW, Migration(OLD, state=emptied)), await ran(OLD, 4), GIVEN)
    assert final["items"][0] == "first"


async def test_a_state_that_the_new_schema_refuses_is_found_before_the_move() -> None:
    class Strict(BaseModel):
        count: int
        items: Annotated[list[Any], operator.add] = []

    new = chain(Strict, first=first, second=second, third=third)
    wrong = {"state": lambda state: {"count": "many", "items": state["items"]}}
    await refused(OLD, new, await ran(OLD, 4), "The node second of .* does not take the state", **wrong)


async def test_what_is_not_recorded_cannot_be_moved() -> None:
    class Open(TypedDict, total=False):
        count: int
        items: Annotated[list[Any], operator.add]
        file: Annotated[Any, UntrackedValue]

    new = chain(Open, first=first, second=second, third=third)
    await refused(OLD, new, await ran(OLD, 4), "The key file of .* is a UntrackedValue")


async def test_a_log_that_the_old_graph_has_not_made_is_not_moved() -> None:
    log = await ran(OLD, 6)
    other = chain(Old, third=third, first=first, second=second)
    moves = versions(NEW, Migration(other, state=counted))
    line = moves.versions
    pinned = line[0].ref.model_dump()
    log[0] = log[0].replace(payload={**log[0].payload, "graph": pinned})
    with pytest.raises(MigrationError, match="The node first has begun in step 1, where"):
        await move(moves, log, GIVEN)


async def test_a_second_move_that_is_refused_takes_the_first_with_it() -> None:
    newest = chain(New, first=first, third=third)
    log = await ran(OLD, 4)
    line = (Migration(OLD, state=counted), Migration(NEW, "2.0.0"))
    with pytest.raises(MigrationError, match=r"The node second is to run next, and sample 3\.0\.0"):
        await move(versions(newest, *line, version="3.0.0"), log, GIVEN)
    assert moved(log) == []


def test_a_run_of_a_graph_that_is_not_listed_has_no_way() -> None:
    moves = versions(NEW, Migration(OLD, state=counted))
    assert not moves.since({"graph_id": "sample", "version": "1.0.0", "fingerprint": "0"})
    assert not moves.since(None)
    assert not moves.since({**moves.versions[0].ref.model_dump(), "version": "1.0.1"})


@pytest.mark.parametrize("nodes", [{"fourth": "third"}, {"third": "fourth"}])
def test_a_name_that_is_no_node_is_told_at_once(nodes: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="has no node fourth"):
        versions(NEW, Migration(OLD, nodes=nodes))


def test_a_graph_is_listed_once() -> None:
    with pytest.raises(ConfigError, match="is there twice"):
        versions(NEW, Migration(OLD), Migration(OLD))
    with pytest.raises(ConfigError, match="is there twice"):
        versions(OLD, Migration(OLD), version="1.0.0")
