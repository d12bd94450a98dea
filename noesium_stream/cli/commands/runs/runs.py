"""`noesium runs`: the list of runs, with input and status."""

from __future__ import annotations

from dataclasses import asdict

import click

from noesium_stream.cli.output import duration, note, out_json, shorten
from noesium_stream.cli.session import asynchronous, json_option, log_option, on_log, opened, settings
from noesium_stream.cli.table import table
from noesium_stream.client import Client, RunInfo
from noesium_stream.clock import to_rfc3339

STATUSES = (
    *("requested", "deferred", "running", "stranded"),
    *("compensating", "completed", "failed", "cancelled", "expired", "refused"),
)
_HELD_UP = ("deferred", "stranded")
_ERROR_WIDTH = 160


@click.command("runs")
@click.option("-a", "--agent", "agent_type", metavar="TYPE", help="Only runs of this agent type.")
@click.option("-s", "--status", type=click.Choice(STATUSES), help="Only runs that stand so.")
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many at most."
)
@click.option("--all", "with_children", is_flag=True, help="Also runs that other runs delegated.")
@log_option
@json_option
@asynchronous
async def runs_command(
    agent_type: str | None,
    status: str | None,
    limit: int,
    with_children: bool,
    log_url: str | None,
    as_json: bool,
) -> None:
    """List runs, newest first; without those that other runs delegated.

    A failed run is followed by its error, a deferred or stranded one by what it waits for.
    """
    async with opened(log_url) as log, Client(log) as client:
        found = await client.list_runs(agent_type=agent_type, status=status)
    runs = [run for run in found if with_children or run.parent_run_id is None][:limit]
    if as_json:
        out_json([asdict(run) for run in runs])
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


def _below(run: RunInfo) -> str:
    """Format the start of an error, or all that a stranded run waits for, because a person has to act."""
    if run.status in _HELD_UP:
        return " ".join((run.reason or "").split())
    return shorten(run.error or run.reason or "", _ERROR_WIDTH)


def _row(run: RunInfo) -> tuple[str, str, str, str, str, str]:
    started = to_rfc3339(run.started_ms)[:19].replace("T", " ") if run.started_ms is not None else ""
    took = ""
    if run.started_ms is not None and run.ended_ms is not None:
        took = duration(max(0, run.ended_ms - run.started_ms))
    agent = f"{run.agent_type} {run.agent_version or ''}".strip()
    return run.run_id, agent, run.status, started, took, shorten(run.label, 60)
