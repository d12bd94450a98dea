"""The fold of goals, for any events: it ends, refuses what cannot be, and does not depend on chance."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.event.rules.goal_fold import (
    MAX_DEPTH,
    MAX_GOALS,
    MAX_LATEST,
    TYPES,
    GoalEvent,
    Order,
    RunGoals,
    folded,
    told,
)
from noesium_stream.event.rules.goal_tree import OPEN, GoalTree

IDS = [f"g{number}" for number in range(6)]
identifiers = st.sampled_from(IDS)


@st.composite
def payloads(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    event_type = draw(st.sampled_from((*TYPES, *["goal.added"] * 5)))
    payload: dict[str, Any] = {"goal_id": draw(identifiers)}
    if event_type == "goal.added":
        payload["title"] = draw(st.sampled_from("ab"))
        payload["parent_id"] = draw(st.none() | identifiers)
        payload["depends_on"] = draw(st.none() | st.lists(identifiers, max_size=3))
    elif event_type.startswith("goal.dependency"):
        payload["depends_on"] = draw(identifiers)
    elif event_type in ("goal.blocked", "goal.failed", "goal.abandoned"):
        payload["reason"] = "why"
    return event_type, payload


@st.composite
def histories(draw: st.DrawFn) -> list[GoalEvent]:
    """The events of a run in the order of their steps."""
    events = []
    for superstep in range(draw(st.integers(1, 5))):
        for task in "ab":
            for number, (event_type, payload) in enumerate(draw(st.lists(payloads(), max_size=5))):
                events.append(GoalEvent(Order(superstep, task, number), event_type, payload, superstep))
    return events


def by_projection(events: list[GoalEvent]) -> GoalTree:
    state = RunGoals()
    for event in events:
        state = told(state, event)
    return state.tree


@given(histories(), st.randoms(use_true_random=False))
def test_the_order_in_which_parallel_nodes_commit_does_not_matter(
    events: list[GoalEvent], chance: random.Random
) -> None:
    tree = folded(GoalTree(), events)
    assert by_projection(events) == tree
    shuffled = list(events)
    chance.shuffle(shuffled)
    shuffled.sort(key=lambda one: one.order.superstep)  # commits of a superstep, in any order
    assert by_projection(shuffled) == tree
    assert folded(GoalTree(), shuffled) == tree


@given(histories(), st.integers(0, 50))
def test_a_fold_that_is_cut_anywhere_and_goes_on_is_the_same(events: list[GoalEvent], cut: int) -> None:
    first = RunGoals()
    for event in events[:cut]:
        first = told(first, event)
    _ = first.tree
    for event in events[cut:]:
        first = told(first, event)
    assert first.tree == folded(GoalTree(), events)


@given(histories())
def test_in_every_tree_what_is_open_can_be_reached(events: list[GoalEvent]) -> None:
    tree = folded(GoalTree(), events)
    for goal in tree:
        assert goal.id not in {one.id for one in tree.above(goal.id)}
        assert goal.parent_id is None or goal.parent_id in tree.goals
        assert all(one in tree.goals for one in goal.depends_on)
        if goal.status == "completed":
            assert [part.id for part in tree.subgoals(goal.id) if part.open] == []
    # Without what was lost or blocked, every goal is completed in the end: no cycle holds it up.
    lost = [one for one in tree if one.status in ("failed", "abandoned", "blocked")]
    if not lost:
        number = 1_000
        while ready := tree.ready():
            number += 1
            more = [("goal.started", {"goal_id": ready[0].id}), ("goal.completed", {"goal_id": ready[0].id})]
            tree = folded(tree, [GoalEvent(Order(number, "", n), *one) for n, one in enumerate(more)])
        active = [one for one in tree if one.status == "active"]
        assert active or not [one for one in tree if one.status in OPEN]


def test_a_deep_tree_and_a_great_many_goals_are_bounded_and_fast() -> None:
    deep = [
        GoalEvent(
            Order(0, "a", number),
            "goal.added",
            {"goal_id": str(number), "title": "x", "parent_id": str(number - 1) if number else None},
        )
        for number in range(100)
    ]
    tree = folded(GoalTree(), deep)
    assert len(tree) == MAX_DEPTH
    assert tree.refusals == 100 - MAX_DEPTH
    assert len(tree.refused) == 20
    begun = time.process_time()
    many = [
        GoalEvent(
            Order(0, "a", number),
            "goal.added",
            {"goal_id": str(number), "title": "x", "depends_on": [str(max(0, number - 1))] if number else []},
        )
        for number in range(5 * MAX_LATEST)
    ]
    tree = by_projection(many)
    assert len(tree) == MAX_GOALS
    assert time.process_time() - begun < 20
    assert len(tree.waits_for(str(MAX_GOALS - 1))) == 1


CODE = """
from noesium_stream.event.rules.goal_fold import GoalEvent, Order, folded
from noesium_stream.event.rules.goal_tree import GoalTree
made = [
    ("goal.added", {"goal_id": name, "title": name, "depends_on": ["a", "b"] if name > "b" else []})
    for name in "abcdefg"
]
tree = folded(GoalTree(), [GoalEvent(Order(n // 3, "t", n), *one) for n, one in enumerate(made)])
print(tree, [one.id for one in tree.ready()], tree.waits_for("g") if "g" in tree.goals else "")
"""


def test_the_tree_is_the_same_under_any_hash_seed() -> None:
    said = set()
    for seed in ("1", "2", "3"):
        command = [sys.executable, "-c", CODE]
        done = subprocess.run(
            command, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        said.add(done.stdout)
    assert len(said) == 1
    assert "Goal(id='g'" in said.pop()
