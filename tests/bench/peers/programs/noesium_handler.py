"""This product's handlers: a process that takes its share of a topic's partitions, once for each line.

    PROGRAM worker '{"url": …, "home": …, "until": {…}, "topic": …}'

Each line of standard input is a JSON object with the `mode` (`count`: the payload is not looked at; `sum`: a
field of it is added up) and the agent's `name`. It says `handled` with null when it handles its first event,
and with the number of each partition whose last event is handled and committed, each with the time (of the
machine's monotonic clock), until the line `end`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import peer_common as common

from noesium_stream.agent import BaseHandler
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.projection.base import BaseProjection
from noesium_stream.worker import Worker
from noesium_stream.worker.gc_tuning import spare_what_is_loaded
from noesium_stream.worker.handler_host import HandlerHost
from noesium_stream.worker.handlers.tenure import HandlerTenure
from noesium_stream.worker.process_settings import tune_process
from tests.bench.events import DOMAIN, EVENTS, catalogue
from tests.bench.worker_agents import HANDLED, Summing


class Counted(DomainEvent, event_type=f"{HANDLED}.counted"):
    """The count of a key after an event."""

    total: int


class Counts(BaseProjection[int]):
    """Events per key."""

    name = "counts"
    topics = (f"events.{DOMAIN}",)
    events = tuple(EVENTS)

    def initial_state(self) -> int:
        return 0

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + 1


class Counting(BaseHandler):
    """Counts the events of each key."""

    agent_type = "counting"
    state = Counts
    events = (Counted,)

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        return [Counted(total=state + 1)]


class Watch:
    """Says when the first event is handled, and when the last one of each partition is committed.

    Args:
        until: offset of the last event of each partition.
    """

    def __init__(self, until: dict[TopicPartition, int]) -> None:
        self._until = until
        self._begun = False
        self._done: set[TopicPartition] = set()
        take, on_log = HandlerHost._handle, HandlerTenure._on_log

        async def taken(host: HandlerHost, records: Sequence[Any]) -> None:
            if not self._begun:
                self._begun = True
                common.say(handled=[None, time.monotonic()])
            await take(host, records)

        def landed(tenure: HandlerTenure, *given: Any) -> None:
            on_log(tenure, *given)
            self._look(tenure)  # this one: the worker may be giving it up

        HandlerHost._handle = taken  # type: ignore[method-assign]
        HandlerTenure._on_log = landed  # type: ignore[method-assign]

    def again(self) -> None:
        """Watch the next agent."""
        self._begun = False
        self._done.clear()

    def _look(self, tenure: HandlerTenure) -> None:
        status = tenure.status(None)
        place = TopicPartition(status.topic, status.partition)
        last = self._until.get(place)
        if last is not None and place not in self._done and status.next_offset > last:
            self._done.add(place)
            common.say(handled=[place.partition, time.monotonic()])

    async def partitions(self, worker: Worker) -> None:
        """Look at the partitions of a worker, for those that it took when all of them was handled already."""
        while True:
            for tenure in worker.tenures():
                self._look(tenure)
            await asyncio.sleep(0.1)


def agent(mode: str, name: str) -> type[BaseHandler]:
    """The handler under a name of its own: a group that has read nothing yet."""
    base = Summing if mode == "sum" else Counting
    return type("Handler", (base,), {"agent_type": name, "__module__": __name__})


async def worker(asked: common.Asked) -> None:
    until = {TopicPartition(asked["topic"], int(partition)): at for partition, at in asked["until"].items()}
    log = await open_log(asked["url"], catalogue=catalogue())
    tune_process(handlers=True)
    watch = Watch(until)
    common.say(ready=True)
    line = await asyncio.to_thread(sys.stdin.readline)
    while line:
        line = await _handle(log, asked, json.loads(line), watch)
    await log.close()


async def _handle(log: EventLog, asked: common.Asked, wanted: Any, watch: Watch) -> str:
    """Handle until the next line; that line."""
    watch.again()
    handler = agent(wanted["mode"], wanted["name"])
    async with Worker(log, [handler], home=Path(asked["home"]) / wanted["name"]) as worker:
        spare_what_is_loaded()  # as `noesium worker` does
        looking = asyncio.create_task(watch.partitions(worker))
        await asyncio.to_thread(sys.stdin.readline)  # `end`
        looking.cancel()
    common.say(ended=True)
    return await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    common.main(worker, worker)
