"""A lone step's commit beside a bare transaction of the same records.

One run does one step after the other, with nothing else on the worker. Each step does something outside, so
that its intent has to be on the log before: that commit is waited for by the step alone. What it does
outside is to write the very records of that commit, ready as they are, in a transaction by hand.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

from noesium_stream.client import Client
from noesium_stream.log.kafka.transactional_producer import TransactionalProducer
from noesium_stream.log.port import Header
from noesium_stream.log.prepare import Prepared, headers_of_text
from noesium_stream.worker import Worker
from noesium_stream.worker.process_settings import tune_process
from noesium_stream.worker.runs.run_session import RunSession
from tests.bench.by_hand.bare import Ready, produce_bare
from tests.bench.by_hand.produce import producer
from tests.bench.harness import Figure, Side, progress
from tests.bench.place import kafka_log
from tests.bench.worker_agents import lone
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

OURS, BARE = "a step's commit", "a bare transaction"


class _Last:
    """The commit before: how long its run waited for it, and its records with all of their headers."""

    def __init__(self) -> None:
        self.ms: list[float] = []
        self.records: list[Ready] = []
        self.topic = ""


async def measure_step(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Milliseconds of a commit, p50 of each of some rounds."""
    rounds, each = settings.repetitions, settings.steps
    progress(f"step: {rounds} x {each} lone steps")
    home = settings.folder / f"step-{secrets.token_hex(4)}"
    last, bare, sizes = _Last(), list[float](), list[int]()
    async with kafka_log(kafka) as log:
        topic = log.topology.events("bare")
        await log.ensure_topics([log.topology.spec(topic)])
        sender = producer(kafka.bootstrap, f"{topic}.producer")

        def by_hand() -> float:
            began = time.perf_counter()
            produce_bare(sender, topic, last.records)
            return (time.perf_counter() - began) * 1e3

        async def outside() -> int:
            sizes.append(len(last.records))
            bare.append(await asyncio.to_thread(by_hand))
            return len(bare)

        warm = max(5, each // 5)
        agent = lone(warm + rounds * each, outside)
        with _watched(last):
            tune_process()
            async with Worker(log, [agent], home=home), Client(log) as client:
                run = await client.start("lone", {"n": 0})
                await run.result(timeout=600)
    ours = last.ms[: len(bare)]
    parts = [slice(warm + number * each, warm + (number + 1) * each) for number in range(rounds)]
    note = f"{median(sizes):.0f} records each; ours: from the step's asking for it to its going on."
    sides = [Side(name, [median(ms[part]) for part in parts]) for name, ms in ((OURS, ours), (BARE, bare))]
    return [Figure("step", "commit of a lone step, p50", "ms", *sides, 1.3, at_least=False, note=note)]


@contextmanager
def _watched(last: _Last) -> Iterator[None]:
    """Note every commit that a run waits for, and what it was made of."""
    commit, produce = RunSession.commit, TransactionalProducer.produce

    async def timed(session: RunSession) -> None:
        began = time.perf_counter()
        await commit(session)
        last.ms.append((time.perf_counter() - began) * 1e3)

    def kept(
        made: TransactionalProducer,
        records: Sequence[Prepared],
        headers: Sequence[Header] | None = None,
        **how: Any,
    ) -> None:
        produce(made, records, headers, **how)
        assert headers is not None, "a writer's commit stands in its records"
        last.records = [
            Ready(r.key, r.partition, [*headers_of_text(r.text.encode()), *r.extra, header], r.value)
            for r, header in zip(records, headers, strict=True)
        ]

    with (
        patch.object(RunSession, "commit", timed),
        patch.object(TransactionalProducer, "produce", kept),
    ):
        yield
