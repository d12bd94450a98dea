"""The row `handler`: consume, keep a number for each key, produce, exactly once; beside Kafka Streams.

Both sides read the same topic of envelopes and make one record of each event. This product runs as many
processes as there are processors, Kafka Streams one JVM with as many threads. Each round starts the processes
anew and handles the whole topic twice in them, under two names: the second time is measured, from the first
event to the last commit, so that the JVM has compiled what it executes often.

They are not alike in all. Kafka Streams writes each change of its state to a changelog topic, which a
successor reads; this product writes none, and a successor folds the events again from its last snapshot.
`count` of Kafka Streams reads no envelope and produces eight bytes; this product always makes an envelope.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, TopicPartition

from noesium_stream.event.codec.avro_schema import ENVELOPE_SCHEMA
from noesium_stream.log.broker.local import LocalBroker
from noesium_stream.log.port import EventLog
from tests.bench.by_hand.bare import ready
from tests.bench.by_hand.consume import decode
from tests.bench.events import DOMAIN, envelopes
from tests.bench.harness import progress
from tests.bench.peers.installing import NotInstalledError
from tests.bench.peers.process import ROOT, PeerProcess, running
from tests.bench.peers.settings import PeerSettings
from tests.bench.peers.systems import PROGRAMS, Ground, remove
from tests.bench.place import kafka_log
from tests.bench.projection_place import BenchTopic
from tests.bench.worker_agents import HANDLED
from tests.support.kafka import KafkaServer, remove_topics

MODES = ("count", "sum")
FILLED = 2_000
PROCESSES = os.cpu_count() or 1
_TICKS = os.sysconf("SC_CLK_TCK")
Values = dict[str, float]


@dataclass(frozen=True)
class HandlerSystem:
    """One side: this product where `commit_ms` is None, else Kafka Streams with that commit interval."""

    name: str
    label: str
    durability: str
    commit_ms: int | None = None


_TAKEN = "one broker takes each transaction (`acks=all`), into the page cache"
HANDLERS: tuple[HandlerSystem, ...] = (
    HandlerSystem("noesium-handler", "noesium_stream, a process per processor", f"no changelog; {_TAKEN}"),
    *(
        HandlerSystem(
            f"streams-{ms}",
            f"Kafka Streams 4.2, `exactly_once_v2`, commits every {ms:,} ms",
            f"a changelog; {_TAKEN}",
            ms,
        )
        for ms in (100, 1_000)
    ),
)


class HandlerBench:
    """The topic that all sides handle.

    Args:
        settings: sizes.
        ground: with the installer.
        broker: that has the topic.
        bootstrap: its address.
        log: in the namespace of the bench.
        topic: filled.
        expected: the sum of the numbers of all keys at the end, by mode.
    """

    def __init__(
        self,
        settings: PeerSettings,
        ground: Ground,
        broker: LocalBroker,
        bootstrap: str,
        log: EventLog,
        topic: BenchTopic,
        expected: Mapping[str, int],
    ) -> None:
        self._settings = settings
        self._ground = ground
        self._broker = broker
        self._bootstrap = bootstrap
        self._log = log
        self._topic = topic
        self._expected = expected

    async def once(self, system: HandlerSystem) -> Values:
        """Events a second and seconds of the processors per million events, in both modes."""
        found = Values()
        for mode in MODES:
            folder = self._ground.fresh(system.name)
            try:
                found.update(await self._in_mode(system, mode, folder))
            finally:
                remove(folder)
        return found

    async def _in_mode(self, system: HandlerSystem, mode: str, folder: Path) -> Values:
        errors = self._ground.folder / f"{folder.name}.errors"
        handle = self._ours if system.commit_ms is None else self._streams
        domain = HANDLED if system.commit_ms is None else f"{HANDLED}-streams-{mode}"
        out = self._log.topology.events(domain)
        await self._log.ensure_topics([self._log.topology.spec(out)])
        async with AsyncExitStack() as stack:
            processes = await handle(system, mode, folder, errors, stack)
            for name in ("warm", "measured"):
                start = await self._log.end(out)
                used, broker = _cpu_s(processes.pids), _cpu_s([self._broker_pid])
                seconds = await processes.handle(f"{mode}-{name}-{secrets.token_hex(3)}", out)
                used, broker = _cpu_s(processes.pids) - used, _cpu_s([self._broker_pid]) - broker
                await processes.end()
        is_count = system.commit_ms is not None and mode == "count"
        number = _int if is_count else _total
        await asyncio.to_thread(self._check, out, start, self._expected[mode], number)
        per_million = 1e6 / self._settings.events
        return {
            mode: self._settings.events / seconds,
            f"{mode}_client": used * per_million,
            f"{mode}_broker": broker * per_million,
        }

    @property
    def _broker_pid(self) -> int:
        pid = self._broker.status().pid
        assert pid is not None
        return pid

    async def _ours(
        self, system: HandlerSystem, mode: str, folder: Path, errors: Path, stack: AsyncExitStack
    ) -> _Handles:
        asked = {**self._topic.asked(), "url": self._log.url}
        started = []
        for number in range(PROCESSES):
            told = json.dumps({**asked, "home": str(folder / str(number))})
            command = [sys.executable, PROGRAMS / "noesium_handler.py", "worker", told]
            # A program's own folder is what Python looks in first: it imports this package from the root.
            started.append(
                await stack.enter_async_context(running(command, errors, {"PYTHONPATH": str(ROOT)}))
            )
        await asyncio.gather(*(process.said("ready") for process in started))
        return _Workers(started, mode, set(self._topic.last))

    async def _streams(
        self, system: HandlerSystem, mode: str, folder: Path, errors: Path, stack: AsyncExitStack
    ) -> _Handles:
        built = await self._ground.installer.maven()
        java = shutil.which("java")
        if java is None:
            raise NotInstalledError("java is not installed")
        command = [
            java,
            f"-Djava.io.tmpdir={folder}",
            "-cp",
            f"{built / 'target' / 'classes'}:{built / 'lib'}/*",
            "bench.Handle",
        ]
        jvm = await stack.enter_async_context(running(command, errors))
        await jvm.said("ready")
        stack.push_async_callback(asyncio.to_thread, remove_topics, self._bootstrap, f"-{system.name}-")
        asked = {
            **self._topic.asked(),
            "mode": mode,
            "folder": str(folder),
            "commit_ms": system.commit_ms,
            "threads": PROCESSES,
            "count": self._settings.events,
            "schema": ENVELOPE_SCHEMA,
        }
        return _Jvm(jvm, asked, f"{self._log.topology.namespace}-{system.name}-")

    def _check(
        self, topic: str, start: Mapping[int, int], expected: int, number: Callable[[bytes], int]
    ) -> None:
        """One record of each event, and the last numbers of all keys as they have to be."""
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "bench-check"}
        consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
        try:
            partitions = consumer.list_topics(topic, 10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, one, start.get(one, 0)) for one in partitions])
            found, ended, last = 0, 0, dict[bytes, bytes]()
            while ended < len(partitions):
                for message in consumer.consume(10_000, 0.2):
                    if message.error() is not None:
                        ended += 1
                        continue
                    found += 1
                    last[message.key()] = message.value()
        finally:
            consumer.close()
        total = sum(map(number, last.values()))
        if (found, total) != (self._settings.events, expected):
            raise RuntimeError(
                f"{found:,} records whose last numbers add up to {total:,}, instead of "
                f"{self._settings.events:,} and {expected:,}"
            )


class _Handles(Protocol):
    """Processes that handle the topic once for each call."""

    @property
    def pids(self) -> Sequence[int]: ...

    async def handle(self, name: str, out: str) -> float:
        """Seconds from the first event to the last commit."""

    async def end(self) -> None:
        """Leave the group."""


class _Workers:
    """Processes of this product that share the partitions."""

    def __init__(self, processes: Sequence[PeerProcess], mode: str, partitions: set[int]) -> None:
        self._processes = processes
        self._mode = mode
        self._partitions = partitions
        self.pids = [process.process.pid for process in processes]

    async def handle(self, name: str, out: str) -> float:
        for process in self._processes:
            process.tell({"mode": self._mode, "name": name})
        left, first, last = set(self._partitions), list[float](), 0.0

        async def follow(process: PeerProcess) -> None:
            nonlocal last
            while left:
                partition, at = await process.said("handled")
                if partition is None:
                    first.append(at)
                elif partition in left:
                    left.discard(partition)
                    last = max(last, at)

        following = [asyncio.create_task(follow(process)) for process in self._processes]
        try:
            while left:  # a process without partitions says nothing
                done, _ = await asyncio.wait(following, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
        return last - min(first)

    async def end(self) -> None:
        for process in self._processes:
            process.tell({"end": True})
        await asyncio.gather(*(process.said("ended") for process in self._processes))


class _Jvm:
    """Kafka Streams in one JVM."""

    def __init__(self, jvm: PeerProcess, asked: Mapping[str, Any], prefix: str) -> None:
        self._jvm = jvm
        self._asked = asked
        self._prefix = prefix
        self.pids = [jvm.process.pid]

    async def handle(self, name: str, out: str) -> float:
        self._jvm.tell({**self._asked, "out": out, "application": f"{self._prefix}{name}"})
        return float(await self._jvm.said("seconds"))

    async def end(self) -> None:
        """Nothing: it closes before it reads what is next."""


def _cpu_s(pids: Sequence[int]) -> float:
    """Seconds of the processors that these processes have used, with all their threads."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / _TICKS


def _total(value: bytes) -> int:
    return int(decode(value)["payload"]["total"])


def _int(value: bytes) -> int:
    return int.from_bytes(value, "big")


@asynccontextmanager
async def handler_bench(settings: PeerSettings, ground: Ground) -> AsyncIterator[HandlerBench]:
    """The bench with its topic, which is filled."""
    broker = await ground.broker()
    kafka = KafkaServer(broker.status().address.replace("localhost", "127.0.0.1"), "of the bench")
    progress(f"handler: filling a topic with {settings.events:,} events")
    async with kafka_log(kafka, f"&partitions={settings.partitions}") as log:
        topic = BenchTopic(kafka, log, log.topology.events(DOMAIN))
        await topic.make()
        made = envelopes(settings.events)
        expected = {"count": len(made), "sum": sum(one.payload["duration_ms"] for one in made)}
        await topic.fill(ready(made, settings.partitions), FILLED)
        yield HandlerBench(settings, ground, broker, kafka.bootstrap, log, topic, expected)
