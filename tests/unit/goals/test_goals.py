"""Goals in nodes: they commit with the step, are the same in a replay and after a crash at any of them."""

from __future__ import annotations

import re
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from agents.examples.release import Releaser
from noesium_stream import BaseGraphicAgent, Goals, GoalTree
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import KernelError, RunFailedError
from noesium_stream.testing import Rehearsal

STEPS = (
    "goal.added",
    "goal.started",
    "goal.failed",
    "goal.dependency.added",
    "goal.blocked",
    "run.signalled",
    "goal.unblocked",
    "goal.completed",
)


def states(tree: GoalTree) -> dict[str, str]:
    return {goal.id: str(tree.status(goal.id)) for goal in tree}


async def test_an_agent_plans_plans_again_and_is_blocked_until_a_signal_comes() -> None:
    async with Rehearsal(Releaser) as rehearsal:
        run = await rehearsal.start({"version": "2.0", "broken": True})
        await run.wait_for("goal.blocked")
        tree = await run.goals()
        assert states(tree) == {
            "release": "pending",
            "build": "completed",
            "test": "failed",
            "publish": "blocked",
            "mend": "completed",
            "test-again": "completed",
        }
        assert tree.goals["publish"].reason == "the key of the release is missing"
        assert tree.goals["publish"].depends_on == ("test-again",)
        await run.signal("key", "4711")
        await run.result()
        tree = await run.goals()
        assert {goal.id for goal in tree if goal.status != "completed"} == {"test"}
        assert tree.goals["publish"].result == {"key": "4711"}
        assert tree.refusals == 0
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(Releaser, rehearsal.log))
        assert verdict.difference is None
        assert [one.run_id for one in await rehearsal.client.goals()] == [run.id]


@pytest.mark.parametrize("crash", STEPS)
async def test_a_crash_changes_no_goal(crash: str) -> None:
    async with Rehearsal(Releaser) as rehearsal:
        rehearsal.crash_after(crash, 1)
        run = await rehearsal.start({"version": "2.0", "broken": True})
        await run.wait_for("goal.blocked")
        await run.signal("key", "4711")
        await run.result()
        assert rehearsal.crashes == 1
        told = [event.event_type for event in await run.history() if event.event_type.startswith("goal.")]
        assert (told.count("goal.added"), told.count("goal.started"), told.count("goal.blocked")) == (6, 5, 1)
        assert (await run.goals()).refusals == 0
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(Releaser, rehearsal.log))
        assert verdict.difference is None


class Said(TypedDict, total=False):
    do: str
    found: Any


class Planner(BaseGraphicAgent):
    """Does what a test asks for in one node, and reads it in the next."""

    agent_type = "planner"

    def get_state_class(self) -> type[Said]:
        return Said

    def _build_graph(self) -> StateGraph[Any]:
        graph = StateGraph(Said)
        graph.add_node("act", self.act)
        graph.add_node("tell", self.tell)
        return graph.add_edge(START, "act").add_edge("act", "tell")

    def act(self, said: Said) -> dict[str, Any]:
        goals = self.goals
        top = goals.add("top")
        part = goals.add("part", parent=top)
        other = goals.add("other", depends_on=[top])
        match said.get("do"):
            case "cycle":
                goals.depend(part, on=other)
            case "start":
                goals.start(other)
            case "complete":
                goals.complete(top)
            case "unknown":
                goals.start("nothing")
            case "long":
                goals.add("x" * 1_001)
            case "many":
                goals.add("x", depends_on=[str(number) for number in range(101)])
            case "fail":
                raise ValueError("no")
            case "abandon":
                goals.abandon(top, "no time")
        assert goals.get(part) is not None
        return {}

    def tell(self, said: Said) -> dict[str, Any]:
        tree = self.goals.tree()
        return {"found": [[goal.title, tree.status(goal.id), goal.changed_ms] for goal in tree]}


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("cycle", "'part': what it depends on waits for it"),
        ("start", "'other' cannot be started: it waits for 'top'"),
        ("complete", "its part .* is open"),
        ("unknown", "'nothing': there is no such goal"),
        ("long", "The title of a goal has 1,001 characters"),
        ("many", "depends on more than 100 others"),
    ],
)
async def test_what_is_not_possible_is_said_where_it_is_done(do: str, said: str) -> None:
    async with Rehearsal(Planner) as rehearsal:
        run = await rehearsal.start({"do": do})
        with pytest.raises(RunFailedError) as caught:
            await run.result()
        assert re.search(said, caught.value.message)
        assert "GoalError" in caught.value.message
        assert len(await run.goals()) == 0


async def test_a_later_node_reads_what_an_earlier_one_has_done_and_no_times() -> None:
    async with Rehearsal(Planner) as rehearsal:
        result = await (await rehearsal.start({})).result()
        assert result["found"] == [["top", "pending", 0], ["part", "pending", 0], ["other", "waiting", 0]]


async def test_who_gives_up_a_goal_gives_up_its_parts() -> None:
    async with Rehearsal(Planner) as rehearsal:
        run = await rehearsal.start({"do": "abandon"})
        await run.result()
        tree = await run.goals()
        assert [goal.status for goal in tree] == ["abandoned", "abandoned", "pending"]
        assert [goal.title for goal in tree.stuck()] == ["other"]


async def test_a_node_that_fails_has_set_no_goals() -> None:
    async with Rehearsal(Planner) as rehearsal:
        run = await rehearsal.start({"do": "fail"})
        with pytest.raises(RunFailedError):
            await run.result()
        assert len(await run.goals()) == 0


def test_outside_a_node_there_are_no_goals() -> None:
    with pytest.raises(KernelError, match="outside a node"):
        Goals().add("x")


class Twice(TypedDict, total=False):
    found: Any


class Rivals(BaseGraphicAgent):
    """Two nodes of one superstep close the same goal."""

    agent_type = "rivals"

    def get_state_class(self) -> type[Twice]:
        return Twice

    def _build_graph(self) -> StateGraph[Any]:
        graph = StateGraph(Twice)
        for name, node in (("plan", self.plan), ("a", self.a), ("b", self.b), ("tell", self.tell)):
            graph.add_node(name, node)
        graph.add_edge(START, "plan").add_edge("plan", "a").add_edge("plan", "b")
        return graph.add_edge(["a", "b"], "tell")

    def plan(self, state: Twice) -> dict[str, Any]:
        self.goals.add("it", id="it")
        return {}

    async def a(self, state: Twice) -> dict[str, Any]:
        self.goals.complete("it")
        return {}

    async def b(self, state: Twice) -> dict[str, Any]:
        self.goals.abandon("it", "too late")
        return {}

    def tell(self, state: Twice) -> dict[str, Any]:
        tree = self.goals.tree()
        return {"found": [tree.goals["it"].status, tree.refusals]}


async def test_nodes_that_run_at_the_same_time_have_one_order_for_the_run_and_for_readers() -> None:
    async with Rehearsal(Rivals) as rehearsal:
        run = await rehearsal.start({})
        assert (await run.result())["found"] == ["completed", 1]
        tree = await run.goals()
        assert (tree.goals["it"].status, tree.refusals) == ("completed", 1)
        assert (tree.refused[0].event_type, tree.refused[0].why) == (
            "goal.abandoned",
            "it is completed already",
        )
