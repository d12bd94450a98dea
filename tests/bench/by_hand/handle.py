"""By hand: consume, handle, produce, exactly once, with confluent-kafka, fastavro and `json`.

Why it is fair: one transaction for each batch, with the group's offsets in it, so that nothing is handled
twice; the settings of `consume.py` and `produce.py`; the schema is parsed once; what is produced is an
envelope of the same fields, under the same seven headers as ours has, with new ids. It does less: its sums
are a dict that is lost with the process, nothing is validated in or out, one transaction spans all
partitions (ours has a fenced writer for each), no journal says how far it has come, and a rebalance would
leave it with the sums of others.

    python -m tests.bench.by_hand.handle '{"bootstrap": …, "topic": …, "out": …, "count": …, "size": …}'
"""

from __future__ import annotations

import io
import json
import secrets
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import fastavro
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from uuid_utils import uuid7

from tests.bench.by_hand.consume import decode
from tests.bench.by_hand.produce import FRAME, SCHEMA, producer

ME = {"agent_id": "by-hand", "agent_type": "by-hand", "runtime_id": "local", "instance_id": "by-hand-1"}
HeaderList = list[tuple[str, bytes]]


def envelope(event: dict[str, Any], event_type: str, payload: dict[str, Any]) -> dict[str, Any]:
    """A new event that comes of `event`, as fastavro writes it."""
    trace = event["trace"]
    return {
        "spec_version": "1.0.0",
        "event_type": event_type,
        "event_version": "1.0.0",
        "producer": ME,
        "event_id": str(uuid7()),
        "trace": {
            "trace_id": trace["trace_id"],
            "span_id": secrets.token_hex(8),
            "parent_span_id": trace["span_id"],
            "depth": trace["depth"],
        },
        "timestamp": time.time_ns() // 1_000_000,
        "causation_id": event["event_id"],
        "correlation_id": event["correlation_id"] or event["event_id"],
        "idempotency_key": f"by-hand/{event['event_id']}/0",
        "partition_key": event["partition_key"],
        "ttl_ms": None,
        "payload": json.dumps(payload, separators=(",", ":"), ensure_ascii=False),
        "metadata": "{}",
        "stream_sequence": None,
        "stream_final": None,
        "signature": None,
        "extensions": {},
    }


def headers(event: dict[str, Any], commit: bytes) -> HeaderList:
    """The same seven that ours has."""
    at = datetime.fromtimestamp(event["timestamp"] / 1000, UTC).isoformat(timespec="milliseconds")
    trace = event["trace"]
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event["event_id"].encode()),
        ("ce_type", event["event_type"].encode()),
        ("ce_source", b"/agents/by-hand/by-hand"),
        ("ce_time", at.replace("+00:00", "Z").encode()),
        ("traceparent", f"00-{trace['trace_id']}-{trace['span_id']}-01".encode()),
        ("noesium_commit", commit),
    ]


def main(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Handle `count` events in batches of `size`; how long it took, and what came of it."""
    consumer = Consumer(
        {
            "bootstrap.servers": asked["bootstrap"],
            "group.id": asked["group"],
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": 16_384,
        }
    )
    sender = producer(asked["bootstrap"], f"{asked['group']}.producer")
    totals: dict[str, int] = {}
    left, size, out, commits = asked["count"], asked["size"], asked["out"], 0
    began = time.perf_counter()
    consumer.subscribe([asked["topic"]])
    first = 0.0
    while left:
        messages = consumer.consume(min(size, left), 0.05)
        if not messages:
            continue
        first = first or time.perf_counter()
        commits += 1
        sender.begin_transaction()
        ends: dict[tuple[str, int], int] = {}
        for number, message in enumerate(messages):
            key = _handle(message, totals, sender, out, f"{commits}:{number}:{len(messages)}".encode())
            ends[key] = message.offset() + 1
        sender.send_offsets_to_transaction(
            [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()],
            consumer.consumer_group_metadata(),
        )
        sender.commit_transaction(30)
        left -= len(messages)
    done = time.perf_counter()
    consumer.close()
    total = sum(totals.values())
    return {"seconds": done - began, "from_first": done - first, "commits": commits, "total": total}


def _handle(
    message: Message, totals: dict[str, int], sender: Any, out: str, commit: bytes
) -> tuple[str, int]:
    if message.error():
        raise KafkaException(message.error())
    event = decode(message.value())
    key, payload = event["partition_key"], event["payload"]
    totals[key] = total = totals.get(key, 0) + payload["duration_ms"]
    made = envelope(
        event,
        "handled.summed",
        {"call_id": payload["call_id"], "tool": payload["tool"], "total": total},
    )
    body = io.BytesIO()
    body.write(FRAME)
    fastavro.schemaless_writer(body, SCHEMA, made)
    sender.produce(out, body.getvalue(), key, headers=headers(made, commit))
    return message.topic(), message.partition()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
