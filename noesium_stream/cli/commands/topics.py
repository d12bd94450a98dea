"""`noesium topics`: what is on the log."""

from __future__ import annotations

from dataclasses import asdict

import click

from noesium_stream.cli.output import note, out_json, size, table
from noesium_stream.cli.session import asynchronous, json_option, log_option, opened
from noesium_stream.log import TopicInfo

_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000


@click.command("topics")
@log_option
@json_option
@asynchronous
async def topics_command(log_url: str | None, as_json: bool) -> None:
    """List the topics of the log: partitions, records, bytes, retention."""
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


def _row(topic: TopicInfo) -> tuple[str, str, str, str, str]:
    stored = "?" if topic.bytes is None else size(topic.bytes)
    return topic.name, str(topic.partitions), str(topic.records), stored, _kept(topic.retention_ms)


def _kept(retention_ms: int | None) -> str:
    if retention_ms is None:
        return "for good"
    if retention_ms % _DAY_MS == 0:
        return f"{retention_ms // _DAY_MS} d"
    return f"{retention_ms / _HOUR_MS:g} h"
