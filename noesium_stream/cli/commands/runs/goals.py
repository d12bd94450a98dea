"""`noesium goals`: what runs have set out to do, and how far they have come."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import click
from rich.tree import Tree

from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import json_text, note, out, out_json
from noesium_stream.cli.session import asynchronous, find_run, given_run, json_option, log_option, opened
from noesium_stream.cli.table import table
from noesium_stream.cli.tree import NarrowTree, styled, tree_lines
from noesium_stream.client import Client, Run
from noesium_stream.client.views.goals import RunTree, goal_json
from noesium_stream.clock import to_rfc3339
from noesium_stream.errors import GoalError
from noesium_stream.escapes import escaped
from noesium_stream.event.rules.goal_fold import TYPES
from noesium_stream.event.rules.goal_tree import OPEN, STATUSES, Goal, GoalTree

_SHOWN: Final = 60
_STYLES: Final = {
    "completed": "green",
    "active": "cyan",
    "blocked": "yellow",
    "failed": "red",
    "abandoned": "dim",
}


@click.command("goals")
@click.argument("run_id", metavar="[RUN]", required=False, callback=given_run)
@click.option("--tree", "as_tree", is_flag=True, help="Trees of all runs; of one run it is the default.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(["open", *STATUSES]),
    help="Only goals that stand there; may be given several times.",
)
@click.option("--history", "goal_id", metavar="ID", help="All that was told of one goal of RUN.")
@log_option
@json_option
@asynchronous
async def goals_command(
    run_id: str | None,
    as_tree: bool,
    statuses: Sequence[str],
    goal_id: str | None,
    log_url: str | None,
    as_json: bool,
) -> None:
    """Show the goals that runs have set themselves, with their parts.

    RUN is a run id or the beginning of one; default: all runs that have goals, and with --history the newest
    run. ID is the id of a goal or the beginning of one.
    """
    async with opened(log_url) as log, Client(log) as client:
        if goal_id is not None:
            await _history(await find_run(client, run_id), goal_id, as_json)
            return
        if run_id is None:
            found = list(await client.goals())
        else:
            run = await find_run(client, run_id)
            tree = await run.goals()
            found = [RunTree(run.id, run.agent_type, tree)] if tree.goals or tree.refusals else []
    wanted = {one for text in statuses for one in (OPEN if text == "open" else (text,))}
    if as_json:
        out_json([_run_json(one, wanted) for one in found])
    elif not found:
        note("No run has goals." if run_id is None else f"Run {escaped(run_id)} has no goals.")
    elif run_id is not None or as_tree:
        for one in found:
            _print_tree(one, wanted)
    else:
        rows = [_row(one, goal) for one in found for goal in _chosen(one.tree, wanted)]
        table(("run", "agent", "goal", "status", "title", "why"), rows)


def _chosen(tree: GoalTree, wanted: Collection[str]) -> list[Goal]:
    return [goal for goal in tree if not wanted or tree.status(goal.id) in wanted]


def _print_tree(one: RunTree, wanted: Collection[str]) -> None:
    tree = one.tree
    done = sum(goal.status == "completed" for goal in tree)
    drawn = NarrowTree(styled(f"{one.agent_type}  {one.run_id}  {done} of {len(tree)} goals completed"))
    # What leads to a wanted goal is shown as well.
    shown = {above.id for goal in _chosen(tree, wanted) for above in (goal, *tree.above(goal.id))}
    branches: dict[str | None, Tree] = {None: drawn}
    for goal in tree:  # a part comes after the goal that it belongs to
        if goal.id in shown:
            status = tree.status(goal.id)
            line = styled(f"{status:<9}  ", _STYLES.get(status, ""))
            line.append_text(styled(f"{goal.title}{_remark(tree, goal)}"))
            branches[goal.id] = branches[goal.parent_id].add(line)
    for text in tree_lines(drawn):
        out(text)
    for refused in tree.refused:
        note(f"refused: {refused.event_type} of {escaped(refused.goal_id[:_SHOWN])}: {refused.why}")
    if tree.refusals > len(tree.refused):
        note(f"and {tree.refusals - len(tree.refused):,} more that were refused")


def _remark(tree: GoalTree, goal: Goal) -> str:
    why = _why(tree, goal)
    return f"  ({why})" if why else ""


def _why(tree: GoalTree, goal: Goal) -> str:
    if goal.reason is not None:
        return goal.reason[:_SHOWN]
    waits = tree.waits_for(goal.id) if tree.status(goal.id) == "waiting" else []
    if waits:
        return "for " + ", ".join(one.title[:_SHOWN] for one in waits)
    return "" if goal.result is None else json_text(goal.result)[:_SHOWN]


def _row(one: RunTree, goal: Goal) -> tuple[str, ...]:
    tree = one.tree
    status = str(tree.status(goal.id))
    return one.run_id, one.agent_type, goal.id[:_SHOWN], status, goal.title[:_SHOWN], _why(tree, goal) or "-"


def _run_json(one: RunTree, wanted: Collection[str]) -> dict[str, Any]:
    tree = one.tree
    refused = [{name: getattr(each, name) for name in each.__slots__} for each in tree.refused]
    return {
        "run_id": one.run_id,
        "agent_type": one.agent_type,
        "goals": [goal_json(tree, goal) for goal in _chosen(tree, wanted)],
        "refused": refused,
        "refusals": tree.refusals,
    }


async def _history(run: Run, prefix: str, as_json: bool) -> None:
    events = [record.unchecked async for record in run.records(follow=False, types=TYPES)]
    known = {event.payload["goal_id"] for event in events}
    found = [prefix] if prefix in known else sorted(one for one in known if one.startswith(prefix))
    if not found:
        note(f"Run {run.id} has no goal {escaped(prefix)}.")
        raise click.exceptions.Exit(FAILED)
    if len(found) > 1:
        raise GoalError(f"{len(found)} goals of run {run.id} begin with {prefix[:60]!r}.", hint="Give more.")
    mine = [event for event in events if event.payload["goal_id"] == found[0]]
    if as_json:
        out_json(
            [{"at": to_rfc3339(one.timestamp_ms), "event": one.event_type, **one.payload} for one in mine]
        )
        return
    rows = []
    for event in mine:
        said = {
            name: value for name, value in event.payload.items() if name != "goal_id" and value is not None
        }
        told = ", ".join(f"{name} {json_text(value)[:_SHOWN]}" for name, value in said.items())
        rows.append((to_rfc3339(event.timestamp_ms), event.event_type.removeprefix("goal."), told or "-"))
    table(("at", "what", "with"), rows)
