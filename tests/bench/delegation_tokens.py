"""A token on its way: from `step.write` in a worker's process to the line that `noesium run` prints."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, create_subprocess_exec
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.harness import Figure, Side, interleave, percentile, progress
from tests.bench.place import kafka_log
from tests.bench.worker_place import working
from tests.support.kafka import KafkaServer

OURS, BARE = "step.write to the line of noesium run", "a bare producer to a bare consumer"
PAUSE_MS = 20
"""Between two tokens: fifty a second, as a model writes them."""
MOST_MS = 100.0

_ROOT = Path(__file__).parents[2]
_AGENT = "tests.bench.delegation_agents:Talker"


async def tokens_of(folder: Path, repetitions: int, tokens: int, kafka: KafkaServer) -> list[Figure]:
    """Milliseconds of a token, p95 of each run; the worker and the command are processes of their own."""
    progress(f"token: {repetitions} runs of {tokens} tokens, one each {PAUSE_MS} ms")
    home = folder / f"token-{secrets.token_hex(4)}"
    async with kafka_log(kafka, "&partitions=1") as log, working(log, "talker", home):
        middles: list[float] = []

        async def ours() -> float:
            found = await _printed(log.url, tokens)
            middles.append(percentile(found, 0.5))
            return percentile(found, 0.95)

        async def bare() -> float:
            topic = f"{log.topology.namespace}.bare.{secrets.token_hex(3)}"
            return percentile(await asyncio.to_thread(_by_hand, kafka.bootstrap, topic, tokens), 0.95)

        await _printed(log.url, 5)
        middles.clear()
        values = await interleave({OURS: ours, BARE: bare}, repetitions)
    note = f"p50 {percentile(middles, 0.5):.1f} ms. By hand: one process, no run, no line."
    return [
        Figure(
            "token",
            "a token from its writer to the terminal, p95",
            "ms",
            Side(OURS, values[OURS]),
            Side(BARE, values[BARE]),
            MOST_MS,
            at_least=False,
            absolute=True,
            note=note,
        )
    ]


async def _printed(url: str, tokens: int) -> list[float]:
    """Run the command; return how old each token was when its line was there, in milliseconds."""
    given = json.dumps({"pieces": tokens, "pause_ms": PAUSE_MS})
    command = [sys.executable, "-m", "noesium_stream.cli", "run", _AGENT, "--input", given, "--stream"]
    process = await create_subprocess_exec(
        *command, "--log", url, cwd=_ROOT, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
    )
    assert process.stdout is not None
    found = [(time.monotonic() - float(line)) * 1e3 async for line in process.stdout]
    assert await process.wait() == 0
    assert len(found) == tokens, "a token came twice or not at all"
    return found


def _by_hand(bootstrap: str, topic: str, tokens: int) -> list[float]:
    """The same by two clients in this process."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(0.5)
    found = []
    for _ in range(tokens):
        time.sleep(PAUSE_MS / 1e3)
        producer.produce(topic, f"{time.monotonic():.6f}")
        producer.poll(0)
        while (message := consumer.poll(30)) is None or message.error() is not None:
            assert message is not None, "nothing came"
        found.append((time.monotonic() - float(message.value() or b"0")) * 1e3)
    producer.flush()
    consumer.close()
    return found
