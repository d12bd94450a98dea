from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from noesium_stream.errors import EventValidationError
from noesium_stream.event import AgentRef, EventEnvelope, SignatureBlock, TraceContext
from tests.support.envelopes import envelope

BAD_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("spec_version", {"spec_version": "1.0"}),
    ("event_id", {"event_id": "0190d7a0-0000-4000-8000-000000000000"}),
    ("event_id", {"event_id": "019B76DA-A800-7D82-B082-532B629F6FBE"}),
    ("event_type", {"event_type": "single"}),
    ("event_type", {"event_type": "a.b.c.d.e"}),
    ("event_type", {"event_type": "Agent.Started"}),
    ("event_version", {"event_version": "01.0.0"}),
    ("timestamp", {"timestamp_ms": -1}),
    ("timestamp", {"timestamp_ms": 253_402_300_800_000}),
    ("timestamp", {"timestamp_ms": 1.5}),
    ("timestamp", {"timestamp_ms": True}),
    ("producer", {"producer": {"agent_id": "a"}}),
    ("producer.agent_id", {"producer": AgentRef("", "b")}),
    ("producer.instance_id", {"producer": AgentRef("a", "b", "c", 7)}),  # type: ignore[arg-type]
    ("trace", {"trace": None}),
    ("trace.trace_id", {"trace": TraceContext("0" * 31, "0" * 16)}),
    ("trace.span_id", {"trace": TraceContext("0" * 32, "X" * 16)}),
    ("trace.parent_span_id", {"trace": TraceContext("0" * 32, "0" * 16, "")}),
    ("trace.depth", {"trace": TraceContext("0" * 32, "0" * 16, None, -1)}),
    ("causation_id", {"causation_id": ""}),
    ("partition_key", {"partition_key": "\ud800"}),
    ("ttl_ms", {"ttl_ms": 2**53}),
    ("stream_final", {"stream_final": 1}),
    ("payload", {"payload": [1]}),
    ("metadata", {"metadata": "text"}),
    ("signature", {"signature": "text"}),
    ("signature.algorithm", {"signature": SignatureBlock("", "k", "s")}),
    ("extensions", {"extensions": {f"x-{number}": 1 for number in range(1001)}}),
    ("extensions.event_id", {"extensions": {"event_id": "x"}}),
    ("extensions.producer.agent_id", {"extensions": {"producer.agent_id": "x"}}),
    ("extensions.signature.note", {"extensions": {"signature.note": "x"}}),
]


@pytest.mark.parametrize(("field", "changes"), BAD_FIELDS)
def test_a_malformed_field_is_refused_by_name(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(EventValidationError) as caught:
        envelope(**changes)
    assert caught.value.field == field
    assert caught.value.reason


def test_an_event_cannot_be_changed() -> None:
    event = envelope()
    with pytest.raises(AttributeError, match="immutable"):
        event.ttl_ms = 5
    with pytest.raises(AttributeError, match="immutable"):
        del event.ttl_ms
    with pytest.raises(AttributeError):
        event.other = 5  # type: ignore[attr-defined]


def test_deepcopy_gives_an_event_with_a_payload_of_its_own() -> None:
    event = envelope()
    other = copy.deepcopy(event)
    assert other == event
    other.payload["list"].append("more")
    assert other != event


def test_pickle_gives_the_same_event() -> None:
    event = envelope(extensions={"x": [1]}, signature=SignatureBlock("a", "b", "c"))
    again = pickle.loads(pickle.dumps(event))
    assert type(again) is EventEnvelope
    assert again == event
    assert hash(again) == hash(event)


def test_the_json_form_writes_time_to_the_millisecond_and_leaves_out_what_is_absent() -> None:
    form = envelope(causation_id=None, extensions={"priority": 3, "trace.baggage": "b"}).to_dict()
    assert form["timestamp"] == "2026-01-01T00:00:00.123Z"
    assert "causation_id" not in form
    assert "extensions" not in form
    assert form["priority"] == 3
    assert form["trace"]["baggage"] == "b"


def test_unknown_fields_of_the_json_form_are_kept_where_they_were() -> None:
    form = envelope().to_dict()
    form["priority"] = 3
    form["producer"]["region"] = "eu"
    event = EventEnvelope.from_dict(form)
    assert event.extensions == {"priority": 3, "producer.region": "eu"}
    assert event.to_dict() == form


@pytest.mark.parametrize("name", ["event_id", "event_type", "timestamp", "producer", "trace", "payload"])
def test_a_missing_field_of_the_json_form_is_refused_by_name(name: str) -> None:
    form = envelope().to_dict()
    del form[name]
    with pytest.raises(EventValidationError) as caught:
        EventEnvelope.from_dict(form)
    assert caught.value.field == name


def test_a_missing_field_within_a_part_is_refused_by_its_path() -> None:
    form = envelope().to_dict()
    del form["producer"]["agent_type"]
    with pytest.raises(EventValidationError) as caught:
        EventEnvelope.from_dict(form)
    assert caught.value.field == "producer.agent_type"


@pytest.mark.parametrize(
    "timestamp",
    [
        "2026-01-01 00:00:00Z",
        "2026-01-01T00:00:00.1234Z",
        "2026-01-01T00:00:00+01:00",
        "2026-13-01T00:00:00Z",
        "2026-01-01T00:00:00",
        "٢٠٢٦-01-01T00:00:00Z",
        1_767_225_600_123,
    ],
)
def test_a_time_that_is_not_utc_to_the_millisecond_is_refused(timestamp: object) -> None:
    with pytest.raises(EventValidationError) as caught:
        EventEnvelope.from_dict({**envelope().to_dict(), "timestamp": timestamp})
    assert caught.value.field == "timestamp"


def test_replace_validates_again() -> None:
    assert envelope().replace(ttl_ms=5).ttl_ms == 5
    with pytest.raises(EventValidationError):
        envelope().replace(ttl_ms=-5)
