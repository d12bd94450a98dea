"""`noesium topics`: lists the topics of the log, and gives an agent more partitions."""

from __future__ import annotations

from dataclasses import asdict

import click
from humanize import naturalsize

from noesium_stream.cli.output import note, out_json
from noesium_stream.cli.session import acting_name, asynchronous, json_option, log_option, opened
from noesium_stream.cli.table import table
from noesium_stream.client import Client
from noesium_stream.log import TopicInfo

_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000


@click.group("topics", invoke_without_command=True)
@log_option
@json_option
@click.pass_context
@asynchronous
async def topics_command(context: click.Context, log_url: str | None, as_json: bool) -> None:
    """List the topics of the log: partitions, records, bytes, retention.

    `grow` gives an agent more partitions.
    """
    if context.invoked_subcommand is not None:
        if log_url is not None or as_json:
            raise click.UsageError(f"Give options behind {context.invoked_subcommand}.", context)
        return
    async with opened(log_url) as log:
        topics = await log.topics()
        if as_json:
            out_json([asdict(topic) for topic in topics])
        elif not topics:
            note(f"There are no topics on {log.url} yet.")
        else:
            table(
                ("topic", "partitions", "records", "size", "kept"),
                map(_row, topics),
                right=frozenset({1, 2, 3}),
            )


@topics_command.command("grow")
@click.argument("agent_type", metavar="TYPE")
@click.option(
    "--partitions", type=click.IntRange(1), required=True, metavar="N", help="How many there are to be."
)
@log_option
@json_option
@asynchronous
async def grow_command(agent_type: str, partitions: int, log_url: str | None, as_json: bool) -> None:
    """Give an agent type more partitions: a new generation of its inbox and its journal.

    New runs go there; runs that have started end where they are. Workers and clients need not be stopped or
    changed, but workers of releases without this feature must be replaced before. Settings and retention are
    those of the present topics. If the command is interrupted, repeat it.
    """
    async with opened(log_url) as log, Client(log, agent_id=await acting_name(log)) as client:
        grown = await client.grow(agent_type, partitions)
    if as_json:
        out_json(
            {
                "agent_type": agent_type,
                "generation": grown.number,
                "partitions": grown.partitions,
                "inbox": grown.inbox,
                "journal": grown.journal,
            }
        )
    else:
        note(f"{agent_type} has generation {grown.number} with {grown.partitions} partitions.")


@topics_command.command("generations")
@click.argument("agent_type", metavar="TYPE", required=False)
@log_option
@json_option
@asynchronous
async def generations_command(agent_type: str | None, log_url: str | None, as_json: bool) -> None:
    """List the generations of agents' topics: partitions and open runs."""
    async with opened(log_url) as log, Client(log) as client:
        found = await client.generations(agent_type=agent_type)
    if as_json:
        out_json([asdict(one) for one in found])
    elif not found:
        note(f"There are no agents{f' of type {agent_type}' if agent_type else ''} on {log.url} yet.")
    else:
        table(
            ("agent", "generation", "partitions", "open runs"),
            ((one.agent_type, str(one.generation), str(one.partitions), str(one.open_runs)) for one in found),
            right=frozenset({1, 2, 3}),
        )


def _row(topic: TopicInfo) -> tuple[str, str, str, str, str]:
    stored = "?" if topic.bytes is None else naturalsize(topic.bytes)
    return topic.name, str(topic.partitions), str(topic.records), stored, _kept(topic.retention_ms)


def _kept(retention_ms: int | None) -> str:
    if retention_ms is None:
        return "for good"
    if retention_ms % _DAY_MS == 0:
        return f"{retention_ms // _DAY_MS} d"
    return f"{retention_ms / _HOUR_MS:g} h"
