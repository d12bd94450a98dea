"""`noesium runs`: the list of runs, with input and status."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from noesium_stream.cli.output import duration, note, out_json, shorten
from noesium_stream.cli.session import (
    asynchronous,
    json_option,
    log_option,
    on_log,
    opened,
    projections_folder,
    settings,
    where_option,
)
from noesium_stream.cli.spans import Span
from noesium_stream.cli.table import table
from noesium_stream.client import Client, RunInfo
from noesium_stream.client.views.where import parse_where, shown_attribute
from noesium_stream.clock import to_rfc3339

STATUSES = (
    *("requested", "deferred", "running", "waiting", "stranded"),
    *("compensating", "completed", "failed", "cancelled", "expired", "refused"),
)
_HELD_UP = ("deferred", "stranded")
_ERROR_WIDTH = 160
_MOST_WAITS = 3


@click.command("runs")
@click.option("-a", "--agent", "agent_type", metavar="TYPE", help="Only runs of this agent type.")
@click.option("-s", "--status", type=click.Choice(STATUSES), help="Only runs that stand so.")
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many at most."
)
@click.option("--all", "with_children", is_flag=True, help="Also runs that other runs delegated.")
@click.option("--since", type=Span(), help="Only runs that were asked for in this time: 90s, 10m, 1h30m, 2d.")
@where_option
@log_option
@json_option
@asynchronous
async def runs_command(
    agent_type: str | None,
    status: str | None,
    limit: int,
    with_children: bool,
    since: timedelta | None,
    where: tuple[str, ...],
    log_url: str | None,
    as_json: bool,
) -> None:
    """List runs, newest first; without those that other runs delegated.

    A failed run is followed by its error, one that waits by whom or what it waits for: a person, a timer,
    another agent, its next attempt, its turn, a worker. `--status waiting` lists these.
    """
    conditions = parse_where(where)
    folder = projections_folder(settings(log_url), None)
    async with opened(log_url) as log, Client(log, index=folder) as client:
        runs = await client.list_runs(
            agent_type=agent_type,
            status=status,
            since=since,
            where=conditions,
            delegated=with_children,
            limit=limit,
        )
    if as_json:
        out_json([{**asdict(run), "attributes": _attributes(run)} for run in runs])
    elif not runs:
        note(f"There are no such runs on {log.url}.")
    else:
        table(
            ("run", "agent", "status", "started", "took", "what"), map(_row, runs), below=[*map(_below, runs)]
        )
        if any(run.status in _HELD_UP for run in runs):
            note(
                f"`noesium workers{on_log(settings(log_url))}` says who has those that wait, and what to do."
            )


def _attributes(run: RunInfo) -> dict[str, Any]:
    return {name: shown_attribute(value) for name, value in sorted(run.attributes.items())}


def _below(run: RunInfo) -> str:
    """Format the start of an error, or all that a stranded run waits for, because a person has to act."""
    if run.status in _HELD_UP:
        return " ".join((run.reason or "").split())
    if run.waits_for:
        more = len(run.waits_for) - _MOST_WAITS
        shown = [wait.shown for wait in run.waits_for[:_MOST_WAITS]] + ([f"{more} more"] if more > 0 else [])
        return f"waits for {'; '.join(shown)}"
    return shorten(run.error or run.reason or "", _ERROR_WIDTH)


def _row(run: RunInfo) -> tuple[str, str, str, str, str, str]:
    started = to_rfc3339(run.started_ms)[:19].replace("T", " ") if run.started_ms is not None else ""
    took = ""
    if run.started_ms is not None and run.ended_ms is not None:
        took = duration(max(0, run.ended_ms - run.started_ms))
    agent = f"{run.agent_type} {run.agent_version or ''}".strip()
    return run.run_id, agent, run.status, started, took, shorten(run.label, 60)
