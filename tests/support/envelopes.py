"""Arbitrary envelopes, and their bytes as fastavro writes them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import orjson
from hypothesis import strategies as st

from noesium_stream.clock import VirtualClock
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.codec.avro_schema import ENVELOPE_SCHEMA, fingerprint
from noesium_stream.event.envelope import AgentRef, EventEnvelope, SignatureBlock, TraceContext
from noesium_stream.event.envelope_fields import MAX_INT, MAX_TIMESTAMP_MS
from noesium_stream.event.standard.catalogue import standard_catalogue

ANYTHING = "demo.anything"
_PARSED = fastavro.parse_schema(ENVELOPE_SCHEMA)
_HEADER = b"\xc3\x01" + fingerprint(ENVELOPE_SCHEMA).to_bytes(8, "little")


def open_catalogue() -> Catalogue:
    """The standard events, and `demo.anything`, whose payload is any object."""
    catalogue = standard_catalogue()
    catalogue.register_schema(ANYTHING, "1.0.0", {"type": "object"})
    return catalogue


def envelope(**changes: Any) -> EventEnvelope:
    """An event of `demo.anything`."""
    fields: dict[str, Any] = {
        "event_id": VirtualClock().uuid7(),
        "event_type": ANYTHING,
        "timestamp_ms": 1_767_225_600_123,
        "producer": AgentRef("researcher", "researcher", "local", "host-4711"),
        "trace": TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "b7ad6b7169203331", 1),
        "causation_id": "019b76da-a800-7d82-b082-532b629f6fbe",
        "partition_key": "019b76da-a800-7aaa-b082-532b629f6fbe",
        "payload": {"text": "Grüße", "count": 3, "ratio": 0.5, "nothing": None, "list": [1, {"a": True}]},
        "metadata": {"to": "librarian"},
    }
    return EventEnvelope(**{**fields, **changes})


texts = st.text(min_size=1, max_size=90)
wholes = st.integers(0, MAX_INT)
hexes = st.integers(0, 2**128 - 1).map(lambda number: f"{number:032x}")
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
canonical_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INT, MAX_INT)
    | st.floats(-1e15, 1e15)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects of these values."""
    return st.dictionaries(st.text(max_size=12), values, max_size=5)


def envelopes(values: st.SearchStrategy[Any] = json_values) -> st.SearchStrategy[EventEnvelope]:
    """Arbitrary events without signatures."""
    ids = st.integers(0, 2**32).map(lambda seed: VirtualClock(seed=seed).uuid7())
    names = texts.filter(lambda name: "." not in name).map(lambda name: f"x-{name}")
    return st.builds(
        EventEnvelope,
        event_id=ids,
        event_type=st.just(ANYTHING),
        event_version=st.sampled_from(["1.0.0", "1.7.12"]),
        spec_version=st.sampled_from(["1.0.0", "1.3.0"]),
        timestamp_ms=st.integers(0, MAX_TIMESTAMP_MS),
        producer=st.builds(AgentRef, texts, texts, texts, st.text(max_size=80)),
        trace=st.builds(
            TraceContext,
            hexes,
            hexes.map(lambda text: text[:16]),
            st.none() | hexes.map(lambda text: text[16:]),
            wholes,
        ),
        causation_id=st.none() | texts,
        correlation_id=st.none() | texts,
        idempotency_key=st.none() | st.text(min_size=60, max_size=200),
        partition_key=st.none() | texts,
        ttl_ms=st.none() | wholes,
        payload=objects(values),
        metadata=objects(values),
        stream_sequence=st.none() | wholes,
        stream_final=st.none() | st.booleans(),
        extensions=st.just({}) | st.dictionaries(names, values, max_size=3),
    )


signatures = st.none() | st.builds(SignatureBlock, texts, texts, texts)


def reference_bytes(event: EventEnvelope) -> bytes:
    """The single object of an event as fastavro writes it, JSON texts as the codec does."""

    def text(value: Any) -> str:
        return orjson.dumps(value).decode()

    producer, trace, signature = event.producer, event.trace, event.signature
    record = {
        "spec_version": event.spec_version,
        "event_type": event.event_type,
        "event_version": event.event_version,
        "producer": {
            "agent_id": producer.agent_id,
            "agent_type": producer.agent_type,
            "runtime_id": producer.runtime_id,
            "instance_id": producer.instance_id,
        },
        "event_id": event.event_id,
        "trace": {
            "trace_id": trace.trace_id,
            "span_id": trace.span_id,
            "parent_span_id": trace.parent_span_id,
            "depth": trace.depth,
        },
        "timestamp": event.timestamp_ms,
        "causation_id": event.causation_id,
        "correlation_id": event.correlation_id,
        "idempotency_key": event.idempotency_key,
        "partition_key": event.partition_key,
        "ttl_ms": event.ttl_ms,
        "payload": text(event.payload),
        "metadata": text(event.metadata),
        "stream_sequence": event.stream_sequence,
        "stream_final": event.stream_final,
        "signature": signature
        and {
            "algorithm": signature.algorithm,
            "public_key_id": signature.public_key_id,
            "signature": signature.signature,
        },
        "extensions": {name: text(value) for name, value in sorted(event.extensions.items())},
    }
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, record)
    return _HEADER + out.getvalue()


def with_body(event: EventEnvelope, **fields: Any) -> bytes:
    """`event` in Avro with fields replaced by raw values, as a careless or hostile writer would."""
    record = fastavro.schemaless_reader(io.BytesIO(reference_bytes(event)[10:]), _PARSED, None)
    assert isinstance(record, dict)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, {**record, **fields})
    return _HEADER + out.getvalue()


def pretty(value: Any) -> str:
    """JSON text in another form than the codec's."""
    return json.dumps(value, indent=1)
