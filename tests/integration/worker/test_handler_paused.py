"""A handler in a worker process that stands still: who takes over wins, on both logs.

Handlers whose workers are killed are among what the fault harness strikes (`tests/chaos`).
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.command import Folder
from tests.support.kafka import KafkaServer
from tests.support.processes import stop
from tests.support.reading import Tail

SUMS = """
from noesium_stream.agent import BaseHandler
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream import BaseProjection


class Counted(DomainEvent, event_type="things.counted"):
    number: int


class Summed(DomainEvent, event_type="sums.made"):
    number: int
    total: int


class Totals(BaseProjection[int]):
    name = "totals"
    topics = ("events.things",)
    events = (Counted,)

    def key(self, event):
        return event.partition_key

    def initial_state(self):
        return 0

    def apply(self, state, event):
        return state + event.payload["number"]


class Sums(BaseHandler):
    agent_type = "sums"
    state = Totals
    events = (Counted, Summed)

    def handle(self, event, state):
        yield Summed(number=event.payload["number"], total=state + event.payload["number"])


AGENT = Sums
"""
KEYS = ("a", "b", "c", "d")


class Counted(DomainEvent, event_type="things.counted"):
    number: int


class Summed(DomainEvent, event_type="sums.made"):
    number: int
    total: int


@pytest.fixture(params=["sqlite", "kafka"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'events.db'}"
    kafka: KafkaServer = request.getfixturevalue("kafka")
    return str(kafka.url(request.getfixturevalue("namespace")))


async def count(log: EventLog, numbers: range) -> None:
    clock = SystemClock()
    await log.append(
        [
            Counted(number=number).to_envelope(
                AgentRef("x", "x"),
                TraceContext(clock.token(16), clock.token(8)),
                partition_key=key,
                clock=clock,
            )
            for number in numbers
            for key in KEYS
        ]
    )


async def sums(tail: Tail, at_least: int) -> dict[str, list[int]]:
    """The totals by key, in their order, as soon as there are so many in all."""
    found: dict[str, list[int]] = {key: [] for key in KEYS}
    for record in await tail.has(at_least):
        event = record.envelope
        found[str(event.partition_key)].append(event.payload["total"])
    return found


async def test_who_takes_over_from_a_worker_that_stands_still_on_the_same_machine_wins(
    url: str, tmp_path: Path
) -> None:
    (tmp_path / "sums.py").write_text(SUMS, encoding="utf-8")
    folder = Folder(tmp_path, NOESIUM_LOG=url)
    log = await open_log(url)
    for event in (Counted, Summed):
        log.catalogue.register(event)
    topic = log.topology.events("sums")
    await log.ensure_topics([log.topology.spec(topic)])
    try:
        await count(log, range(1, 3))
        async with Tail(log, topic) as tail:
            with folder.running("worker", "sums") as paused:
                await sums(tail, 2 * len(KEYS))
                await stop(paused.pid, url)
                with folder.running("worker", "sums") as owner:
                    await count(log, range(3, 5))
                    await sums(tail, 4 * len(KEYS))
                    paused.signal(signal.SIGCONT)
                    await count(log, range(5, 6))
                    found = await sums(tail, 5 * len(KEYS))
                    assert found == {key: [1, 3, 6, 10, 15] for key in KEYS}
                    for process in (owner, paused):
                        assert [line for line in process.err if "Traceback" in line or "error:" in line] == []
    finally:
        await log.close()
