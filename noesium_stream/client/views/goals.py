"""The goals of runs, for people and programs: read from the journals (RFC-1001 §5, `goalith`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.goal_fold import TYPES, GoalEvent, folded, goal_event
from noesium_stream.event.rules.goal_tree import Goal, GoalTree
from noesium_stream.log.generations import open_generations
from noesium_stream.log.port import EventLog


@dataclass(frozen=True, slots=True)
class RunTree:
    """The goals of one run."""

    run_id: str
    agent_type: str
    tree: GoalTree


def tree_of(events: Iterable[EventEnvelope]) -> GoalTree:
    """The goals that these events of a run have made."""
    return folded(GoalTree(), [one for one in map(goal_event, events) if one is not None])


async def all_goals(log: EventLog, agent_types: Iterable[str]) -> list[RunTree]:
    """The goals of all runs that have some, by agent type and in the order in which they were first set.

    Raises:
        LogUnavailableError
    """
    found: dict[tuple[str, str], list[GoalEvent]] = {}
    seen: set[str] = set()
    for agent_type in agent_types:
        for generation in await open_generations(log, agent_type):
            until = await log.end(generation.journal)
            async for record in log.read(generation.journal, {}, until=until, types=TYPES):
                try:
                    event = record.unchecked
                except CorruptRecordError:
                    continue  # `noesium doctor` tells of it
                made = goal_event(event)
                if made is not None and record.key is not None and event.event_id not in seen:
                    seen.add(event.event_id)
                    found.setdefault((agent_type, record.key), []).append(made)
    return [RunTree(run_id, kind, folded(GoalTree(), events)) for (kind, run_id), events in found.items()]


def goal_json(tree: GoalTree, goal: Goal) -> dict[str, Any]:
    """A goal as JSON, with its status as people see it."""
    found = {name: getattr(goal, name) for name in Goal.__slots__}
    waits = [one.id for one in tree.waits_for(goal.id)] if goal.open else []
    return {**found, "depends_on": list(goal.depends_on), "status": tree.status(goal.id), "waits_for": waits}
