"""The age of commands that have a time to live, by the log's time.

A command's own timestamp is that of its sender, whose clock may be wrong. Its age begins when the log
appended it to the inbox (`LogAppendTime`), and is taken when its owner starts it. The commit of the start has
no append time before it is on the log, so the owner's clock says what time it is then. `run.started` records
the age: every later execution judges the same number.
"""

from __future__ import annotations

from typing import Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import CommandExpired
from noesium_stream.log.headers import LOGGED
from noesium_stream.log.record import Record

_DIGITS: Final = 15


def logged_ms(record: Record) -> int:
    """When the log took a command, in milliseconds since the epoch; a forwarded one keeps its first time."""
    told = record.header(LOGGED) or b""
    if told.isdigit() and len(told) <= _DIGITS:
        return min(int(told), record.timestamp_ms)
    return record.timestamp_ms


def waited_ms(record: Record, command: EventEnvelope, now_ms: int) -> int | None:
    """Age of a command that starts now, in milliseconds; None: it has no time to live."""
    return None if command.ttl_ms is None else max(0, now_ms - logged_ms(record))


def expiry(command: EventEnvelope, started: EventEnvelope | None) -> CommandExpired | None:
    """The end of a run whose command had expired when it started; None: it had not.

    Earlier releases recorded no age: theirs is that by the clocks of the sender and the owner.
    """
    if command.ttl_ms is None or started is None:
        return None
    age_ms = started.payload.get("waited_ms")
    if age_ms is None:
        age_ms = max(0, started.timestamp_ms - command.timestamp_ms)
    if age_ms <= command.ttl_ms:
        return None
    return CommandExpired(
        run_id=started.payload["run_id"], command_id=command.event_id, ttl_ms=command.ttl_ms, age_ms=age_ms
    )
