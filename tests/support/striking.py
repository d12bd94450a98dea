"""A worker that dies at the commit of one event of its runs: in a rehearsal, or as a process of its own.

    python -m tests.support.striking NUMBER before|after ARGUMENTS...

is `noesium ARGUMENTS...`, which kills itself (SIGKILL) before or after that commit. Events are counted from
1, over everything that the process commits on a SQLite log.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from noesium_stream.cli import main
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.log.sqlite.writer import SqliteWriter
from noesium_stream.testing import Rehearsal


def of_a_run(event: EventEnvelope) -> bool:
    """Whether a worker wrote this for one of its runs, and not about itself."""
    return not event.event_type.startswith(("partition.", "agent."))


def strike_at(rehearsal: Rehearsal, number: int, reaches_log: bool) -> None:
    """Kill the worker with the commit of its `number`-th event."""
    seen = 0

    def when(event: EventEnvelope) -> bool:
        nonlocal seen
        seen += of_a_run(event)
        return seen == number

    rehearsal.crash_when(when, reaches_log=reaches_log)


def die_at(number: int, reaches_log: bool) -> None:
    """Let this process die with the commit of its `number`-th event."""
    commit, seen = SqliteWriter.commit, set[str]()

    async def deadly(writer: SqliteWriter, outgoing: Sequence[Outgoing]) -> list[Position]:
        seen.update(record.envelope.event_id for record in outgoing if of_a_run(record.envelope))
        if len(seen) < number:
            return await commit(writer, outgoing)
        if reaches_log:
            await commit(writer, outgoing)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a dead process goes on")

    setattr(SqliteWriter, "commit", deadly)  # noqa: B010 - mypy knows that it is a method


if __name__ == "__main__":
    die_at(int(sys.argv[1]), sys.argv[2] == "after")
    main(sys.argv[3:])
