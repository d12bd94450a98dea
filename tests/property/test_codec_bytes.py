"""The written-out codec against fastavro, for arbitrary events."""

from __future__ import annotations

from hypothesis import given, settings

from noesium_stream.event.codec.avro_schema import ENVELOPE_SCHEMA
from noesium_stream.event.codec.codec import EnvelopeCodec, encode_body
from noesium_stream.event.codec.decode import decode_body
from noesium_stream.event.codec.other_schemas import WriterSchema, from_record
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.signing import Signer, Verifier
from tests.support.envelopes import canonical_values, envelopes, open_catalogue, reference_bytes, signatures

CODEC = EnvelopeCodec(open_catalogue())
SIGNER = Signer(bytes(range(32)), "key-1")
VERIFYING = EnvelopeCodec(open_catalogue(), verifier=Verifier({"key-1": SIGNER.public_key}))
CURRENT = WriterSchema(ENVELOPE_SCHEMA)


@settings(deadline=None)
@given(envelopes())
def test_an_encoded_event_has_the_bytes_that_fastavro_writes(event: EventEnvelope) -> None:
    assert CODEC.encode(event) == reference_bytes(event)


@settings(deadline=None)
@given(envelopes(), signatures)
def test_a_signature_block_has_the_bytes_that_fastavro_writes(
    event: EventEnvelope, signature: object
) -> None:
    event = event.replace(signature=signature, extensions={})
    body = encode_body(event, b"{}", b"{}", {})
    assert body == reference_bytes(event.replace(payload={}, metadata={}))[10:]


@settings(deadline=None)
@given(envelopes())
def test_a_decoded_event_equals_the_encoded_one(event: EventEnvelope) -> None:
    again = CODEC.decode(reference_bytes(event))
    assert again == event
    assert list(again.payload) == list(event.payload)


@settings(deadline=None)
@given(envelopes())
def test_the_written_out_decoder_reads_every_unsigned_event_without_extensions(event: EventEnvelope) -> None:
    event = event.replace(extensions={})
    assert decode_body(reference_bytes(event), 10) == event


@settings(deadline=None)
@given(envelopes())
def test_the_careful_way_reads_what_the_written_out_decoder_reads(event: EventEnvelope) -> None:
    assert from_record(CURRENT.read(reference_bytes(event), 10)) == event


@settings(deadline=None)
@given(envelopes(canonical_values))
def test_a_signed_event_survives_its_encoding(event: EventEnvelope) -> None:
    signed = SIGNER.sign(event)
    data = VERIFYING.encode(signed)
    assert VERIFYING.decode(data) == signed
    assert data[10:] == CURRENT.write(CURRENT.read(data, 10))


@settings(deadline=None)
@given(envelopes())
def test_the_json_form_of_an_event_gives_the_event(event: EventEnvelope) -> None:
    event = event.replace(extensions={k: v for k, v in event.extensions.items() if v is not None})
    assert EventEnvelope.from_dict(event.to_dict()) == event
