"""What a run has beside its state goes over into its next segment: goals, and slices of accounts."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import BaseGraphicAgent
from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import BudgetExceededError
from noesium_stream.event.rules.goal_fold import MAX_DEPTH, carried_tree
from noesium_stream.event.standard import Amounts, BudgetSet
from noesium_stream.event.standard.segment import CarriedGoal, CarriedGoals
from noesium_stream.event.trust.budget import Budget
from noesium_stream.kernel.segment_state import STARTED
from noesium_stream.llm import JournaledLLM
from noesium_stream.testing import Rehearsal
from tests.unit.agent.accounts.test_treasurer import ADA, account_of, treasurer
from tests.unit.llm.test_gate import Priced, of_type

ROUNDS = 6


class Round(TypedDict, total=False):
    number: int
    seen: Annotated[list[Any], operator.add]


class Planner(BaseGraphicAgent):
    """Sets a goal in each step, and starts, revises, and closes those of the steps before."""

    agent_type = "planner"
    segment_steps: ClassVar[int | None] = 2

    def get_state_class(self) -> type[Round]:
        return Round

    def _build_graph(self) -> StateGraph[Any]:
        graph = StateGraph(Round).add_node("plan", self.plan).add_edge(START, "plan")
        return graph.add_conditional_edges("plan", lambda s: END if s["number"] == ROUNDS else "plan")

    async def plan(self, state: Round) -> dict[str, Any]:
        number, goals = state.get("number", 0), self.goals
        if number == 0:
            goals.add("all of it", id="all", detail="the whole")
        else:
            goals.complete(f"g{number - 1}", {"done": number - 1})
        needed = [] if number == 0 else [f"g{number - 1}"]
        goals.start(goals.add(f"goal {number}", id=f"g{number}", parent="all", depends_on=needed))
        goals.revise(f"g{number}", title=f"goal number {number}")
        if number == 2:
            goals.block(goals.add("waits", id="w"), "for good")
        seen = {
            goal.id: (goal.title, str(goals.tree().status(goal.id)), goal.revision) for goal in goals.tree()
        }
        return {"number": number + 1, "seen": [seen]}


class Whole(Planner):
    """The same in one segment."""

    segment_steps: ClassVar[int | None] = None


async def planned(kind: type[Planner], crash: int = 0) -> tuple[Any, Any]:
    async with Rehearsal(kind) as rehearsal:
        if crash:
            rehearsal.crash_after(STARTED, crash)
        run = await rehearsal.start({})
        seen = (await run.result())["seen"]
        tree = await run.goals()
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        assert verdict.difference is None
        segments = [event for event in await run.history() if event.event_type == STARTED]
        assert len(segments) == (0 if kind is Whole else 2)
        shown = {goal.id: (goal.title, goal.status, goal.depends_on, goal.result) for goal in tree}
        return seen, (shown, tree.refusals)


@pytest.mark.parametrize("crash", [0, 1, 2])
async def test_a_node_has_the_goals_of_earlier_segments(crash: int) -> None:
    seen, tree = await planned(Planner, crash)
    assert (seen, tree) == await planned(Whole)
    assert seen[-1]["w"] == ["waits", "blocked", 0]
    assert tree[1] == 0


def carried(*goals: CarriedGoal) -> dict[str, Any]:
    return CarriedGoals(goals=list(goals)).model_dump(mode="json")


def test_goals_that_cannot_be_are_named_and_left_out() -> None:
    own = CarriedGoal(id="own", title="its own parent", parent_id="own")
    first = CarriedGoal(id="a", title="a", parent_id="b")
    second = CarriedGoal(id="b", title="b", depends_on=["a", "nobody", "c"])
    tree = carried_tree(carried(own, first, second))
    assert list(tree.goals) == ["b"]
    assert tree.goals["b"].depends_on == ()
    assert [one.goal_id for one in tree.refused] == ["own", "a"]
    deep = [
        CarriedGoal(id=str(number), title="t", parent_id=None if number == 0 else str(number - 1))
        for number in range(MAX_DEPTH + 5)
    ]
    tree = carried_tree(carried(*deep))
    assert len(tree) == MAX_DEPTH
    assert tree.refusals == 5


def spender(model: Priced) -> Any:
    llm = JournaledLLM(model)

    async def ask(state: Round) -> dict[str, Any]:
        number = state.get("number", 0)
        try:
            answer = await llm.complete(f"{number:010}")
        except BudgetExceededError:
            answer = "no room"
        return {"number": number + 1, "seen": [answer]}

    graph = StateGraph(Round).add_node("ask", ask).add_edge(START, "ask")
    graph.add_conditional_edges("ask", lambda state: END if state["number"] == ROUNDS else "ask")
    kind = agent_from_graph(graph, "spender")
    kind.segment_steps = 2
    return kind


@pytest.mark.parametrize("percent", [0, 50])
@pytest.mark.parametrize("crash", [0, 1, 2])
async def test_an_account_pays_for_all_segments_and_never_more_than_it_has(
    tmp_path: Path, percent: int, crash: int
) -> None:
    model = Priced()
    kind = spender(model)
    async with Rehearsal(kind) as rehearsal, treasurer(rehearsal, tmp_path):
        limits = BudgetSet(account=ADA, limits=Amounts(calls=5), slice_percent=percent)
        await rehearsal.client.publish(limits, key=ADA)
        if crash:
            rehearsal.crash_after(STARTED, crash)
        run = await rehearsal.start({}, budget=Budget(accounts=(ADA,)))
        answers = (await run.result())["seen"]
        events, made = await run.history(), model.made
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        account = await account_of(rehearsal.log, ADA)
    assert verdict.difference is None
    assert answers == ["yes"] * 5 + ["no room"]
    assert model.made == made == 5
    assert len([event for event in events if event.event_type == STARTED]) == 2
    asked = [one["request_id"] for one in of_type(events, "budget.requested")]
    assert len(asked) == len(set(asked)), "each request has an id of its own"
    assert account.spent["calls"] == 5
    assert not account.open
