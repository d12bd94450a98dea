"""Inbox records that their owner has refused: they are dead letters, and count for nothing."""

from __future__ import annotations

from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.event.standard import EventValidationFailed
from noesium_stream.log.generations import open_generations
from noesium_stream.log.port import EventLog, Position
from noesium_stream.log.topics import partition_of


async def refused_records(log: EventLog, agent_type: str, run_id: str | None = None) -> dict[Position, str]:
    """Why they were refused, from the journals of an agent type or from the partitions that have a run.

    Raises:
        LogUnavailableError
    """
    refused = dict[Position, str]()
    for generation in await open_generations(log, agent_type):
        until = await log.end(generation.journal)
        if run_id is not None:
            partition = partition_of(run_id, len(until))
            until = {partition: until[partition]}
        types = (EventValidationFailed.TYPE,)
        async for record in log.read(generation.journal, {}, until=until, types=types):
            try:
                payload = record.unchecked.payload
                place = Position(payload["topic"], payload["partition"], payload["offset"])
                refused[place] = str(payload["failure_reason"])
            except WRONG as error:
                pass_over(record, error)
    return refused
