"""Rows of a projection over one topic of facts, as its owner has them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from noesium_stream.errors import CorruptRecordError, StateBusyError, TopicNotFoundError
from noesium_stream.log.port import EventLog
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.engine import ProjectionEngine


async def folded_rows(log: EventLog, fold: BaseProjection[Any], folder: Path | None) -> dict[str, Any]:
    """The rows by key; events that cannot be read are left out: the owner says it.

    Args:
        log: an open log.
        fold: a keyed projection of one topic, in which an event's key is its partition key.
        folder: where projections keep their states on this machine, so that each call reads later events
            only. None: each call folds the topic in memory.

    Raises `LogUnavailableError`.
    """
    if folder is not None:
        with suppress(StateBusyError), ProjectionEngine(log, folder) as engine:
            engine.register(fold.name, fold)
            await engine.catch_up(fold.name)
            return dict(engine.scan(fold.name))
    topic, rows = f"{log.topology.namespace}.{fold.topics[0]}", dict[str, Any]()
    try:
        until = await log.end(topic)
    except TopicNotFoundError:
        return rows
    async for record in log.read(topic, {}, until=until, types=fold.event_types):
        try:
            event = record.envelope
        except CorruptRecordError:
            continue
        key = fold.key(event)
        if key is None or key != record.key:
            continue
        row = fold.apply(rows.get(key, fold.initial_state()), event)
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
    return rows
