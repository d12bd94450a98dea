"""The peer: Quix Streams handles the topic; run by the Python of a virtual environment that has it.

Why it is fair: its defaults, which are its fastest (a commit every 5 seconds, RocksDB without fsync), with
exactly once, a state with its changelog, and the output topic; no logging. Envelope and payload are read as
in `projection_quix.py`; what it makes is written by fastavro too, under the seven headers that ours has (left
alone, Quix Streams passes on those of the event that it comes of); nothing is validated. It stops itself by
counting.

    PYTHON worker_quix.py '{"bootstrap": …, "topic": …, "out": …, "group": …, "folder": …, "count": …}'
"""

from __future__ import annotations

import io
import json
import secrets
import sys
import time
from datetime import UTC, datetime
from typing import Any

import fastavro
import orjson
from quixstreams import Application, State
from quixstreams.models import Deserializer, Serializer

FRAME_BYTES = 10
ME = {"agent_id": "quix", "agent_type": "quix", "runtime_id": "local", "instance_id": "quix-1"}


class Reads(Deserializer):
    """The envelope as a dict, with its payload decoded."""

    def __init__(self, schema: Any) -> None:
        super().__init__()
        self._schema = schema

    def __call__(self, value: bytes, ctx: Any) -> Any:
        event: Any = fastavro.schemaless_reader(io.BytesIO(value[FRAME_BYTES:]), self._schema, None)
        event["payload"] = orjson.loads(event["payload"])
        return event


class Writes(Serializer):
    """The envelope as bytes."""

    def __init__(self, schema: Any, frame: bytes) -> None:
        super().__init__()
        self._schema = schema
        self._frame = frame

    def __call__(self, value: Any, ctx: Any) -> bytes:
        out = io.BytesIO()
        out.write(self._frame)
        fastavro.schemaless_writer(out, self._schema, value)
        return out.getvalue()


def summed(event: dict[str, Any], total: int) -> dict[str, Any]:
    """What is made of an event, as fastavro writes it; the random text stands for a new id."""
    trace, payload = event["trace"], event["payload"]
    made = {"call_id": payload["call_id"], "tool": payload["tool"], "total": total}
    return {
        **event,
        "event_type": "handled.summed",
        "producer": ME,
        "event_id": secrets.token_hex(18),
        "trace": {**trace, "span_id": secrets.token_hex(8), "parent_span_id": trace["span_id"]},
        "timestamp": time.time_ns() // 1_000_000,
        "causation_id": event["event_id"],
        "idempotency_key": f"quix/{event['event_id']}/0",
        "payload": orjson.dumps(made).decode(),
    }


def headers(event: dict[str, Any]) -> list[tuple[str, bytes]]:
    """The same seven that ours has; a constant stands for the commit, which Quix Streams does not tell."""
    at = datetime.fromtimestamp(event["timestamp"] / 1000, UTC).isoformat(timespec="milliseconds")
    trace = event["trace"]
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event["event_id"].encode()),
        ("ce_type", b"handled.summed"),
        ("ce_source", b"/agents/quix/quix"),
        ("ce_time", at.replace("+00:00", "Z").encode()),
        ("traceparent", f"00-{trace['trace_id']}-{trace['span_id']}-01".encode()),
        ("noesium_commit", b"quix-1:0:1"),
    ]


def main(asked: dict[str, Any]) -> None:
    """Handle the topic once; print how long it took, and the sum of all states' changes."""
    app = Application(
        broker_address=asked["bootstrap"],
        consumer_group=asked["group"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=asked["folder"],
        loglevel=None,
        consumer_extra_config={
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,
            "queued.max.messages.kbytes": 16_384,
        },
        producer_extra_config={"compression.type": "zstd", "linger.ms": 5},
    )
    schema = fastavro.parse_schema(asked["schema"])
    out = app.topic(asked["out"], value_serializer=Writes(schema, bytes.fromhex(asked["frame"])))
    frame = app.dataframe(app.topic(asked["topic"], value_deserializer=Reads(schema)))
    seen = total = 0
    first = 0.0
    count = asked["count"]

    def handled(event: Any, state: State) -> Any:
        nonlocal seen, total, first
        seen += 1
        if seen == 1:
            first = time.perf_counter()
        amount = event["payload"]["duration_ms"]
        sum_of_key = state.get("n", 0) + amount
        state.set("n", sum_of_key)
        total += amount
        if seen == count:
            app.stop()
        return summed(event, sum_of_key)

    frame = frame.apply(handled, stateful=True).set_headers(lambda value, *_: headers(value))
    frame.to_topic(out)
    context: Any = app._processing_context
    commit, done = context.commit_checkpoint, 0.0

    def timed(*args: Any, **kwargs: Any) -> None:
        nonlocal done
        commit(*args, **kwargs)
        if seen == count and not done and kwargs.get("force"):
            done = time.perf_counter()

    context.commit_checkpoint = timed
    began = time.perf_counter()
    app.run()
    print(json.dumps({"seconds": done - began, "from_first": done - first, "total": total}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
