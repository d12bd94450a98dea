"""Access to the store of an embedded log: records that no `EventLog` writes, and the tables of its groups."""

from __future__ import annotations

from typing import Any, cast

from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.embedded.store import Store
from noesium_stream.log.memory.store import MemoryStore
from noesium_stream.log.port import EventLog, Position
from noesium_stream.log.prepare import Prepared


def store_of(log: EventLog) -> Store:
    """The store of a log in memory or in a file."""
    return cast(EmbeddedLog, log).store  # no `isinstance`: the log may be in a wrapper of the test


def memory_of(log: EventLog) -> MemoryStore:
    """The records and groups that all logs in memory of one name share."""
    opened: Any = store_of(log)
    return cast(MemoryStore, opened.shared)


async def inject(log: EventLog, *records: Prepared, partition: int = 0) -> list[Position]:
    """Append records as a foreign program does: whatever they are, nothing is checked."""
    return await store_of(log).append(records, [partition] * len(records))
