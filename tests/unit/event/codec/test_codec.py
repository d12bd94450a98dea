from __future__ import annotations

import copy
import dataclasses
import io
import json
import subprocess
import sys
from typing import Any

import fastavro
import pytest
from hypothesis import given

from noesium_stream.errors import EventValidationError, UnknownSchemaError
from noesium_stream.event import AgentRef, EnvelopeCodec, EventEnvelope
from noesium_stream.event.codec import codec as wire
from noesium_stream.event.codec import decode as wire_read
from noesium_stream.event.codec.avro_schema import _RELEASED as RELEASED
from noesium_stream.event.codec.avro_schema import (
    ENVELOPE_SCHEMA,
    envelope_fingerprint,
    fingerprint,
    fingerprint_name,
    released_schemas,
    schema_text,
)
from noesium_stream.event.codec.codec import peek_identity
from tests.support.envelopes import envelope, envelopes, open_catalogue, pretty, reference_bytes, with_body

CODEC = EnvelopeCodec(open_catalogue())


def written(schema: Any, record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return b"\xc3\x01" + fingerprint(schema).to_bytes(8, "little") + out.getvalue()


def record_of(event: Any) -> dict[str, Any]:
    parsed = fastavro.parse_schema(ENVELOPE_SCHEMA)
    record = fastavro.schemaless_reader(io.BytesIO(reference_bytes(event)[10:]), parsed, None)
    assert isinstance(record, dict)
    return record


def older_schema() -> Any:
    schema = copy.deepcopy(ENVELOPE_SCHEMA)
    absent = {"extensions", "stream_sequence", "stream_final", "signature", "metadata"}
    schema["fields"] = [field for field in schema["fields"] if field["name"] not in absent]
    schema["fields"].reverse()
    return schema


def newer_schema() -> Any:
    schema = copy.deepcopy(ENVELOPE_SCHEMA)
    schema["fields"].insert(3, {"name": "priority", "type": ["null", "int"], "default": None})
    schema["fields"].append({"name": "labels", "type": {"type": "map", "values": "string"}, "default": {}})
    schema["fields"].append({"name": "blob", "type": ["null", "bytes"], "default": None})
    producer = next(field for field in schema["fields"] if field["name"] == "producer")
    producer["type"]["fields"].append({"name": "region", "type": "string", "default": ""})
    return schema


def test_fingerprints_are_those_of_the_avro_specification() -> None:
    assert fingerprint("int") == 0x7275D51A3F395C8F
    assert fingerprint("string") == 0x8F014872634503C7


def test_the_released_envelope_has_the_fingerprint_it_was_released_with() -> None:
    assert fingerprint_name(ENVELOPE_SCHEMA) == "fd76b62054d4d5df"
    assert reference_bytes(envelope())[:10].hex() == "c301dfd5d45420b676fd"


def test_the_package_ships_the_current_schema_among_the_released_ones() -> None:
    path = RELEASED / f"{fingerprint_name(ENVELOPE_SCHEMA)}.avsc"
    assert path.is_file(), f"a changed envelope is a new release: add {path.name} beside the others"
    assert path.read_text("utf-8") == schema_text(ENVELOPE_SCHEMA)
    for file in RELEASED.glob("*.avsc"):
        assert file.stem == fingerprint_name(json.loads(file.read_text("utf-8")))
    assert envelope_fingerprint() in released_schemas()


def test_an_event_of_an_older_envelope_version_has_defaults_for_what_came_later() -> None:
    event = envelope(metadata=None)
    record = record_of(event)
    data = written(older_schema(), {name: record[name] for name in record})
    with pytest.raises(UnknownSchemaError, match="writer schema"):
        CODEC.decode(data)
    assert EnvelopeCodec(open_catalogue(), writer_schemas=[older_schema()]).decode(data) == event


def test_unknown_fields_of_a_newer_envelope_version_are_kept_and_written_again() -> None:
    event = envelope()
    record: dict[str, Any] = {**record_of(event), "priority": 7, "labels": {"a": "b"}, "blob": b"\x00\xff"}
    record["producer"]["region"] = "eu"
    read = EnvelopeCodec(open_catalogue(), writer_schemas=[newer_schema()]).decode(
        written(newer_schema(), record)
    )
    kept = {"priority": 7, "labels": {"a": "b"}, "blob": "AP8=", "producer.region": "eu"}
    assert read == event.replace(extensions=kept)
    assert CODEC.decode(CODEC.encode(read)) == read


def test_absent_fields_of_a_newer_envelope_version_stay_absent() -> None:
    record = {**record_of(envelope()), "priority": None, "labels": {}, "blob": None}
    record["producer"] = {**record["producer"], "region": ""}
    codec = EnvelopeCodec(open_catalogue(), writer_schemas=[newer_schema()])
    assert codec.decode(written(newer_schema(), record)).extensions == {"labels": {}, "producer.region": ""}


def test_json_text_of_another_writer_is_read_whatever_its_form() -> None:
    event = envelope()
    data = with_body(event, payload=pretty(event.payload), metadata=" {} ")
    assert CODEC.decode(data) == event.replace(metadata={})


def test_extension_blocks_with_a_byte_size_are_read() -> None:
    # -1 element, 5 bytes: "x" -> "7"; the form of the specification that lets readers skip blocks.
    data = reference_bytes(envelope())[:-1] + b"\x01\x08\x02x\x027\x00"
    assert CODEC.decode(data) == envelope(extensions={"x": 7})


def test_the_payload_is_validated_when_it_is_written_and_when_it_is_read() -> None:
    bad = envelope(event_type="run.requested", payload={"run_id": 7, "agent_type": "a", "input": {}})
    with pytest.raises(EventValidationError) as caught:
        CODEC.encode(bad)
    assert caught.value.field == "payload.run_id"
    with pytest.raises(EventValidationError) as caught:
        CODEC.decode(reference_bytes(bad))
    assert caught.value.field == "payload.run_id"
    assert CODEC.decode_unchecked(reference_bytes(bad)) == bad


def test_an_event_of_an_unknown_type_is_refused_but_can_be_looked_at() -> None:
    event = envelope(event_type="never.heard")
    with pytest.raises(UnknownSchemaError, match=r"never\.heard"):
        CODEC.encode(event)
    with pytest.raises(UnknownSchemaError):
        CODEC.decode(reference_bytes(event))
    assert CODEC.decode_unchecked(reference_bytes(event)) == event


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (float("nan"), "payload.deep.0"),
        (float("inf"), "payload.deep.0"),
        (2**64, "payload.deep.0"),
        ("\ud800", "payload.deep.0"),
        (b"bytes", "payload.deep.0"),
        ({1: 2}, "payload.deep.0"),
        ({1, 2}, "payload.deep.0"),
    ],
)
def test_what_json_cannot_hold_is_not_written(value: Any, field: str) -> None:
    with pytest.raises(EventValidationError) as caught:
        CODEC.encode(envelope(payload={"deep": [value]}))
    assert caught.value.field == field


def test_nan_beside_a_null_is_not_written_as_null() -> None:
    with pytest.raises(EventValidationError, match="nan"):
        CODEC.encode(envelope(metadata={"nothing": None, "number": float("nan")}))
    with pytest.raises(EventValidationError, match="nan"):
        CODEC.encode(envelope(extensions={"number": float("nan")}))


def test_many_producers_and_types_do_not_make_the_tables_grow_without_bound() -> None:
    for number in range(5000):
        event = envelope(producer=AgentRef(f"agent-{number}", "x"))
        assert CODEC.decode(CODEC.encode(event)) == event
    assert len(wire._heads) <= 4096
    assert len(wire_read._heads) <= 4096


def test_an_event_is_written_the_same_under_every_hash_seed() -> None:
    program = (
        "from tests.support.envelopes import *; from noesium_stream.event import EnvelopeCodec;"
        "e = envelope(extensions={'b': 1, 'a': {'z': 1, 'y': 2}, 'c': 3});"
        "print(EnvelopeCodec(open_catalogue()).encode(e).hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1


@given(envelopes())
def test_an_identity_that_is_peeked_at_is_that_of_the_event(event: EventEnvelope) -> None:
    codec = EnvelopeCodec(open_catalogue())
    data = codec.encode(event)
    told = peek_identity(data)
    assert told in (None, event.event_id + event.producer.agent_id)
    for cut in range(0, 120, 7):
        peek_identity(data[:cut])


def test_the_identity_of_a_usual_event_is_peeked_at() -> None:
    event = envelope()
    data = EnvelopeCodec(open_catalogue()).encode(event)
    assert peek_identity(data) == event.event_id + event.producer.agent_id
    assert peek_identity(b"garbage") is None


def test_events_that_begin_alike_are_told_apart() -> None:
    codec, first = EnvelopeCodec(open_catalogue()), envelope()
    others = [
        first.replace(event_id="019b76da-a800-7d82-b082-532b629f6fbf"),
        *(
            first.replace(producer=dataclasses.replace(first.producer, **{field: f"text-{field}"}))
            for field in ("agent_id", "agent_type", "runtime_id", "instance_id")
        ),
    ]
    for event in (first, *others, first):
        data = codec.encode(event)
        assert peek_identity(data) == event.event_id + event.producer.agent_id
        assert peek_identity(data[: data.index(event.event_id.encode()) + 35]) is None
