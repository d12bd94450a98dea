"""Where projections are measured: topics filled in bulk, processes of their own, and Quix's environment."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import venv
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from noesium_stream.log.port import EventLog
from tests.bench.by_hand.bare import Ready, produce_bare
from tests.bench.by_hand.produce import producer
from tests.bench.harness import progress
from tests.support.kafka import KafkaServer

QUIX = "quixstreams==3.28.*"
_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 1_800.0
_SEEN_S = 60.0


class BenchTopic:
    """A topic that is filled from this process.

    Args:
        kafka: the broker.
        log: whose namespace it is in.
        name: of the topic; it is made where it is missing.
    """

    def __init__(self, kafka: KafkaServer, log: EventLog, name: str) -> None:
        self.name = name
        self.last: dict[int, int] = {}
        """The offset of the newest event in every partition that has one."""
        self.count = 0
        self._ends: Counter[int] = Counter()
        self._kafka = kafka
        self._log = log

    async def make(self) -> None:
        """Make the topic."""
        await self._log.ensure_topics([self._log.topology.spec(self.name)])

    async def fill(self, records: Iterator[Ready] | Sequence[Ready], size: int) -> None:
        """Append records in transactions of `size`."""
        await asyncio.to_thread(self._fill, iter(records), size)

    def _fill(self, records: Iterator[Ready], size: int) -> None:
        filler = producer(self._kafka.bootstrap, f"{self.name}.producer")
        while batch := list(islice(records, size)):
            produce_bare(filler, self.name, batch)
            self.count += len(batch)
            written = Counter(record.partition for record in batch)
            self._ends.update(written)
            self._ends.update(written.keys())  # a marker in each
        self._look()

    def _look(self) -> None:
        """Learn the newest offsets: a transaction's marker lies behind the last event of a partition.

        Readers of committed records see a commit a moment after the producer: wait for that.
        """
        consumer = Consumer({"bootstrap.servers": self._kafka.bootstrap, "group.id": "bench-look"})
        deadline = time.monotonic() + _SEEN_S
        for partition in consumer.list_topics(self.name, 10).topics[self.name].partitions:
            end = -1
            while end < self._ends[partition]:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"{self.name}/{partition} ends at {end}, not at {self._ends[partition]}"
                    )
                _, end = consumer.get_watermark_offsets(TopicPartition(self.name, partition), 10)
            if end >= 2:
                self.last[partition] = end - 2
        consumer.close()

    def time_ms(self, share: float) -> int:
        """When the log took the event that lies at this share of partition 0."""
        at = int(self.last[0] * share)
        consumer = Consumer({"bootstrap.servers": self._kafka.bootstrap, "group.id": "bench-look"})
        consumer.assign([TopicPartition(self.name, 0, at)])
        while (message := consumer.poll(10.0)) is None or message.error():
            pass
        consumer.close()
        return int(message.timestamp()[1])

    def asked(self) -> dict[str, Any]:
        """What a process has to know to read it."""
        return {
            "bootstrap": self._kafka.bootstrap,
            "namespace": self._log.topology.namespace,
            "topic": self.name,
            "until": self.last,
        }


async def child(what: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Run `projection_child`; what it has found."""
    return await run_alone([sys.executable, "-m", "tests.bench.projection_child", what, json.dumps(asked)])


async def quix(python: Path, asked: dict[str, Any], script: str = "projection_quix.py") -> dict[str, Any]:
    """Run Quix's side; what it has found."""
    return await run_alone([str(python), str(Path(__file__).with_name(script)), json.dumps(asked)])


async def run_alone(command: Sequence[str]) -> dict[str, Any]:
    """Run a process to its end; what its last line says."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    process = await create_subprocess_exec(*command, cwd=_ROOT, stdout=PIPE, env=environment)
    try:
        out, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} ended with {process.returncode}")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


async def quix_python() -> Path:
    """The Python of a virtual environment with Quix Streams, made once and kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "noesium-bench"
    folder = cache / QUIX.replace("*", "x").replace("==", "-")
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        progress(f"  making an environment with {QUIX} in {folder}")
        await asyncio.to_thread(venv.create, folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", QUIX, "fastavro", "orjson"]
        process = await create_subprocess_exec(*command, stdout=sys.stderr)
        if await process.wait():
            raise RuntimeError(f"{QUIX} could not be installed")
        ready.touch()
    return python


def drop_from_cache(folder: Path) -> None:
    """Let the kernel forget the content of all files below a folder; they are on the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
