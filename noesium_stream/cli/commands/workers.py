"""`noesium workers`: who owns which partition, and how it stands."""

from __future__ import annotations

from dataclasses import asdict

import click

from noesium_stream.cli.output import duration, note, out_json, table
from noesium_stream.cli.session import asynchronous, json_option, log_option, opened
from noesium_stream.client import Client, OwnedPartition
from noesium_stream.log.topics import first_generation, generation_of


@click.command("workers")
@click.option("-a", "--agent", "agent_type", metavar="TYPE", help="Only this agent type.")
@log_option
@json_option
@asynchronous
async def workers_command(agent_type: str | None, log_url: str | None, as_json: bool) -> None:
    """List the partitions of all agents: owner, epoch, lag, open runs, oldest step.

    OWNER is the worker's host and process; a partition without one has nobody now. EPOCH grows with each
    owner. LAG is what waits in the inbox. OLDEST STEP is for how long the run has been at work that has
    written nothing for longest. Workers say so every 10 s; `?` is what the owner has yet to say.

    Under a partition stands what its owner cannot go on with, what that waits for, who carries it, and what
    to do.
    """
    async with opened(log_url) as log, Client(log) as client:
        found = await client.workers(agent_type=agent_type)
    if as_json:
        out_json([asdict(one) for one in found])
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


def _below(one: OwnedPartition) -> str:
    """What nobody goes on with here, and what to do about it."""
    if not one.parked:
        return ""
    if one.carried_by:
        who = f"carried by {', '.join(one.carried_by)}: replace {one.owner} by a worker that carries it, too"
    else:
        who = "carried by nobody: start a worker that does"
    return f"{one.parked} parked, waiting for {', '.join(one.waits_for)}; {who} (--also)"


def _row(one: OwnedPartition) -> tuple[str, ...]:
    unknown = "" if one.owner is None else "?"
    known = (unknown if n is None else str(n) for n in (one.epoch, one.lag, one.open_runs))
    oldest = "" if one.oldest_step_ms is None else duration(one.oldest_step_ms)
    # The inbox is what agents with runs read; what a handler reads has a name worth showing.
    of_inbox = first_generation(one.topic).endswith(f".{one.agent_type}.inbox")
    generation = generation_of(one.topic)
    topic = f"{one.topic}/" if not of_inbox else "" if generation == 1 else f"g{generation}/"
    return one.agent_type, f"{topic}{one.partition}", one.owner or "nobody", *known, oldest
