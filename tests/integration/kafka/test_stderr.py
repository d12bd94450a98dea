"""What a program sees on standard error when Kafka is away: this package's words, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time

from noesium_stream.log.broker.local import LocalBroker
from tests.support.ports import dead_port
from tests.support.reading import PATIENCE_S

OPEN = """
import asyncio, sys
from noesium_stream.errors import NoesiumError
from noesium_stream.log.open import open_log

async def main():
    try:
        await open_log(sys.argv[1])
    except NoesiumError as error:
        print(f"error: {error}", file=sys.stderr)

asyncio.run(main())
"""

ALL_AT_WORK = """
import asyncio, sys
from noesium_stream.log.kafka import admin_connection, append
from noesium_stream.log.open import open_log
from tests.support.events import catalogue, counted, outgoing
from tests.support.reading import GroupMember, Tail, eventually, numbers, stored

# A busy machine may need more than half a minute to start a broker again.
admin_connection.PATIENCE_S = append.PATIENCE_S = append.PUBLISH_S = 600.0

async def main():
    log = await open_log(sys.argv[1], catalogue=catalogue())
    topic, journal = log.topology.events("demo"), log.topology.journal("tester")
    await log.ensure_topics([log.topology.spec(journal)])
    await log.append([counted(0, "k"), counted(1, "k")])
    await log.append([counted(2, "k")])
    writer, member = await log.writer("w"), GroupMember()
    await writer.commit(outgoing([counted(0)], journal, 0))
    subscription = await log.subscribe("g", [topic], member.handle)
    async with Tail(log, topic) as tail:
        await tail.has(3)
        await eventually(lambda: len(member.records) == 3)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await log.append([counted(3, "k")])
        await log.append([counted(4, "k"), counted(5, "k")])
        assert numbers(await tail.has(6)) == list(range(6))
        # What was handled and not recorded before the broker died comes again.
        await eventually(lambda: set(numbers(member.records)) == set(range(6)))
        await log.close()
    print("done", flush=True)

asyncio.run(main())
"""


def test_an_absent_broker_is_one_clear_error_within_seconds_and_nothing_else() -> None:
    began = time.monotonic()
    with dead_port() as port:
        done = subprocess.run(
            [sys.executable, "-c", OPEN, f"kafka://user:hunter2@localhost:{port}?security=sasl_plaintext"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert time.monotonic() - began < PATIENCE_S
    assert done.stderr == (
        f"error: no Kafka broker answers at localhost:{port} (tried for 10 s).\n"
        "  Start one with `noesium broker up`, or give another address with --log or NOESIUM_LOG.\n"
    )
    assert done.stdout == ""


def test_a_broker_killed_and_started_again_is_waited_for_in_silence(own_broker: LocalBroker) -> None:
    status = own_broker.up()
    program = subprocess.Popen(
        [sys.executable, "-c", ALL_AT_WORK, f"{status.url}?partitions=2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    own_broker.kill()
    program.stdin.write("\n")
    program.stdin.flush()
    time.sleep(1.0)  # not to synchronise: the outage has to last for a while
    assert own_broker.up().address == status.address
    out, err = program.communicate(timeout=600)
    assert err == ""
    assert (program.returncode, out) == (0, "done\n")
