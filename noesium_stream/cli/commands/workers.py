"""`noesium workers`: owners and status of the partitions."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

import click

from noesium_stream.cli.output import duration, note, out_json
from noesium_stream.cli.session import asynchronous, json_option, log_option, opened
from noesium_stream.cli.table import table
from noesium_stream.client import Client, OwnedPartition
from noesium_stream.log.topics import first_generation, generation_of


@click.command("workers")
@click.option("-a", "--agent", "agent_type", metavar="TYPE", help="Only this agent type.")
@log_option
@json_option
@asynchronous
async def workers_command(agent_type: str | None, log_url: str | None, as_json: bool) -> None:
    """List the partitions of all agents: owner, epoch, lag, open runs, oldest step.

    OWNER is the worker's host and process; nobody: the partition has no owner now. EPOCH grows with each
    owner. LAG is the number of records that wait in the inbox; where nobody has it, so many at most. OLDEST
    STEP is the longest time for which a working run has written nothing. Workers report every 10 s; `?`: the
    owner has not reported yet.

    A partition is followed by the runs and requests that its owner cannot go on with, what they wait for,
    which process carries that, and what to do; or by why its owner has stopped working on it.
    """
    async with opened(log_url) as log, Client(log) as client:
        found = await client.workers(agent_type=agent_type)
    if as_json:
        out_json([_as_json(one) for one in found])
    elif not found:
        what = f"agents of type {agent_type}" if agent_type else "agents"
        note(f"There are no {what} on {log.url} yet.")
    else:
        table(
            ("agent", "partition", "owner", "epoch", "lag", "open", "oldest step"),
            map(_row, found),
            right=frozenset({1, 3, 4, 5, 6}),
            below=[*map(_below, found)],
        )


def _as_json(one: OwnedPartition) -> dict[str, Any]:
    """Make the JSON fields of a partition; a duration is in milliseconds, as its name says."""
    fields = {
        "oldest_step_ms" if name == "oldest_step" else name: value for name, value in asdict(one).items()
    }
    return {**fields, "oldest_step_ms": _milliseconds(one.oldest_step)}


def _milliseconds(length: timedelta | None) -> int | None:
    return None if length is None else round(length / timedelta(milliseconds=1))


def _below(one: OwnedPartition) -> str:
    """Format what the owner cannot go on with, and what to do about it."""
    if one.owner is None and one.lag:
        return f"nobody takes these up: start a worker of {one.agent_type} (noesium worker --help)"
    if one.stopped is not None:
        return f"stopped: {one.stopped} See: noesium doctor"
    if not one.held_up:
        return ""
    if one.carried_by:
        who = f"carried by {', '.join(one.carried_by)}: replace {one.owner} by a worker that carries it, too"
    else:
        who = "carried by nobody: start a worker that does"
    return f"{one.held_up} held up, waiting for {', '.join(one.waits_for)}; {who} (--also)"


def _row(one: OwnedPartition) -> tuple[str, ...]:
    unknown = "" if one.owner is None else "?"
    known = (unknown if n is None else str(n) for n in (one.epoch, one.lag, one.open_runs))
    oldest_ms = _milliseconds(one.oldest_step)
    oldest = "" if oldest_ms is None else duration(oldest_ms)
    # Agents with runs read their inbox, whose name need not be shown; a handler's topic is shown.
    of_inbox = first_generation(one.topic).endswith(f".{one.agent_type}.inbox")
    generation = generation_of(one.topic)
    topic = f"{one.topic}/" if not of_inbox else "" if generation == 1 else f"g{generation}/"
    return one.agent_type, f"{topic}{one.partition}", one.owner or "nobody", *known, oldest
