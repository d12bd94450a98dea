"""Delegation: a round trip beside the same by hand, many callers beside direct calls, tokens on their way."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from noesium_stream.client import Client
from noesium_stream.log.kafka.transactional_producer import TransactionalProducer
from noesium_stream.log.port import Header
from noesium_stream.log.prepare import Prepared, headers_of_text
from noesium_stream.worker import Worker
from noesium_stream.worker.process_settings import tune_process
from tests.bench.by_hand.produce import producer
from tests.bench.delegation_agents import Adder, timed_caller
from tests.bench.delegation_tokens import tokens_of
from tests.bench.harness import Figure, Side, interleave, percentile, progress
from tests.bench.place import kafka_log
from tests.bench.projection_place import run_alone
from tests.bench.worker_place import Seen, worker
from tests.bench.worker_runs import AT_ONCE, run_all
from tests.support.kafka import KafkaServer

OURS, BARE = "step.invoke, A to B and back", "the same transactions by hand"
WORKER, DIRECT = "a worker of ours", "one process, InMemorySaver"


@dataclass(frozen=True)
class DelegationSettings:
    """Sizes; the defaults are those of a full run. `folder` is where workers keep their state."""

    folder: Path
    repetitions: int = 3
    trips: int = 60
    callers: int = 1_000
    tokens: int = 300


@dataclass(frozen=True)
class _Sent:
    """What one transaction sent: topic, key, headers and value of each record."""

    at_s: float
    records: tuple[tuple[str, str, list[Header], bytes], ...]


async def measure_trip(settings: DelegationSettings, kafka: KafkaServer) -> list[Figure]:
    """Milliseconds of a call, p50 of each round; and ten in a sequence beside one."""
    progress(f"trip: {settings.repetitions} x {settings.trips} calls")
    home = settings.folder / f"trip-{secrets.token_hex(4)}"
    trips: list[tuple[float, float]] = []
    sent: list[_Sent] = []
    async with kafka_log(kafka, "&partitions=1") as log:
        topology = log.topology
        inboxes = topology.inbox("adder"), topology.inbox("caller")
        with _watched(sent):
            tune_process()
            async with Worker(log, [timed_caller(trips), Adder], home=home), Client(log) as client:

                async def call(calls: int) -> float:
                    run = await client.start("caller", {"n": 0, "calls": calls})
                    found = await run.result(timeout=600)
                    assert found == {"n": calls}
                    return sum(ended - began for began, ended in trips[-calls:]) * 1e3

                await call(10)
                sent.clear()
                await call(1)
                chain = [one for one in sent if trips[-1][0] <= one.at_s <= trips[-1][1]]
                bare = await _Chain.made(kafka, log.topology.namespace, chain, inboxes)

                async def ours() -> float:
                    return percentile([await call(1) for _ in range(settings.trips)], 0.5)

                async def by_hand() -> float:
                    return percentile(await asyncio.to_thread(bare.run, settings.trips), 0.5)

                async def ten() -> float:
                    return percentile([await call(10) for _ in range(max(1, settings.trips // 5))], 0.5)

                values = await interleave({OURS: ours, BARE: by_hand, "ten": ten}, settings.repetitions)
                bare.close()
    sizes = [len(one.records) for one in chain]
    note = f"{len(chain)} transactions of {', '.join(map(str, sizes))} records; two consumers by hand."
    return [
        Figure(
            "trip",
            "A calls B and has its answer, p50",
            "ms",
            Side(OURS, values[OURS]),
            Side(BARE, values[BARE]),
            1.6,
            at_least=False,
            note=note,
        ),
        Figure(
            "trip",
            "ten calls in a sequence, p50",
            "ms",
            Side("ten calls", values["ten"]),
            Side("one call", values[OURS]),
            10.5,
            at_least=False,
        ),
    ]


@contextmanager
def _watched(sent: list[_Sent]) -> Iterator[None]:
    """Note every transaction, and what it was made of."""
    produce = TransactionalProducer.produce

    def kept(
        made: TransactionalProducer,
        records: Sequence[Prepared],
        headers: Sequence[Header] | None = None,
        **how: Any,
    ) -> None:
        produce(made, records, headers, **how)
        own = headers or [("none", b"")] * len(records)
        found = tuple(
            (r.topic, r.key, [*headers_of_text(r.text.encode()), *r.extra, header], r.value)
            for r, header in zip(records, own, strict=True)
        )
        sent.append(_Sent(time.perf_counter(), found))

    with patch.object(TransactionalProducer, "produce", kept):
        yield


class _Chain:
    """The transactions of one call by hand: each is begun when the one before is committed and, where that
    sent something to an inbox, when a consumer of the inbox has it.
    """

    def __init__(self, bootstrap: str, prefix: str, chain: Sequence[_Sent], inboxes: Sequence[str]) -> None:
        self._topics = {topic: f"{prefix}.bare.{number}" for number, topic in enumerate(_topics(chain))}
        self._chain = chain
        admin = AdminClient({"bootstrap.servers": bootstrap})
        made = admin.create_topics([NewTopic(topic, 1) for topic in self._topics.values()])
        for future in made.values():
            future.result()
        self._inboxes = {self._topics[topic] for topic in inboxes if topic in self._topics}
        self._producers = {
            owner: producer(bootstrap, f"{prefix}.bare.{owner}")
            for owner in dict.fromkeys(map(_owner, chain))
        }
        self._consumers = {topic: _consumer(bootstrap, topic) for topic in self._inboxes}

    @classmethod
    async def made(
        cls, kafka: KafkaServer, namespace: str, chain: Sequence[_Sent], inboxes: Sequence[str]
    ) -> _Chain:
        """Make the topics, the producers and the consumers."""
        assert len(chain) > 1, "a call is more than one transaction"
        return await asyncio.to_thread(
            cls, kafka.bootstrap, f"{namespace}.{secrets.token_hex(3)}", chain, inboxes
        )

    def run(self, times: int) -> list[float]:
        """Milliseconds of each of so many passes."""
        found = []
        for _ in range(times):
            began = time.perf_counter()
            for sent in self._chain:
                self._send(self._producers[_owner(sent)], sent)
            found.append((time.perf_counter() - began) * 1e3)
        return found

    def _send(self, made: Producer, sent: _Sent) -> None:
        made.begin_transaction()
        for topic, key, headers, value in sent.records:
            made.produce(self._topics[topic], value, key, 0, headers=headers)
        made.commit_transaction(30)
        for topic in {self._topics[topic] for topic, *_ in sent.records} & self._inboxes:
            while (message := self._consumers[topic].poll(30)) is None or message.error() is not None:
                assert message is not None, f"nothing came to {topic}"

    def close(self) -> None:
        """Close the consumers."""
        for consumer in self._consumers.values():
            consumer.close()


def _topics(chain: Sequence[_Sent]) -> list[str]:
    return list(dict.fromkeys(topic for sent in chain for topic, *_ in sent.records))


def _owner(sent: _Sent) -> str:
    """Whose journal a transaction writes to: each owner has a producer of its own."""
    return next((topic for topic, *_ in sent.records if topic.endswith(".journal")), "")


def _consumer(bootstrap: str, topic: str) -> Consumer:
    """A committed reader of a new topic, which has fetched."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(0.5)
    return consumer


async def measure_callers(settings: DelegationSettings, kafka: KafkaServer) -> list[Figure]:
    """Runs per second of callers, each of which calls once, beside direct calls in one process."""
    callers = settings.callers
    progress(f"callers: {callers:,} runs that call, {AT_ONCE} at once")
    home = settings.folder / f"callers-{secrets.token_hex(4)}"
    async with kafka_log(kafka, "&partitions=1") as log:
        topology = log.topology
        for agent in ("adder", "caller"):
            await log.ensure_topics(
                [topology.spec(topology.inbox(agent)), topology.spec(topology.journal(agent))]
            )
        async with (
            worker(log.url, "callers", home, AT_ONCE) as crew,
            Seen(log, "caller", ("run.completed", "run.failed")) as seen,
        ):
            await crew.said(lambda line: "owned" in line, 2)

            async def ours() -> float:
                return callers / await run_all(log, seen, "caller", callers)

            async def direct() -> float:
                asked = json.dumps({"runs": callers, "at_once": AT_ONCE})
                found = await run_alone([sys.executable, "-m", "tests.bench.worker_child", "direct", asked])
                return float(callers / found["seconds"])

            await run_all(log, seen, "caller", AT_ONCE)
            values = await interleave({WORKER: ours, DIRECT: direct}, settings.repetitions)
            failed = seen.counts.get("run.failed", 0)
    assert not failed, f"{failed} runs have failed"
    sides = Side(WORKER, values[WORKER]), Side(DIRECT, values[DIRECT])
    note = f"{AT_ONCE} callers at once; each is two runs, the caller's and the provider's."
    return [Figure("callers", "a caller and the run that it calls", "runs/s", *sides, 0.6, note=note)]


async def measure_token(settings: DelegationSettings, kafka: KafkaServer) -> list[Figure]:
    """Milliseconds from a provider's `step.write` to the line of a command, beside bare clients."""
    return await tokens_of(settings.folder, settings.repetitions, settings.tokens, kafka)


OF_DELEGATION = {"trip": measure_trip, "callers": measure_callers, "token": measure_token}
