"""Damaged bytes: refused in so many words, or another sound event; never anything else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from noesium_stream.errors import EventValidationError
from noesium_stream.event.codec.avro_schema import ENVELOPE_SCHEMA
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.codec.decode import decode_body
from noesium_stream.event.codec.other_schemas import WriterSchema, from_record
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.signing import Signer, Verifier
from tests.support.envelopes import canonical_values, envelope, envelopes, open_catalogue, reference_bytes

CODEC = EnvelopeCodec(open_catalogue())
SIGNER = Signer(bytes(range(32)), "key-1")
VERIFYING = EnvelopeCodec(open_catalogue(), verifier=Verifier({"key-1": SIGNER.public_key}))
CURRENT = WriterSchema(ENVELOPE_SCHEMA)
SOUND = reference_bytes(envelope())
RICH = reference_bytes(
    envelope(extensions={"x": 1, "y": [2]}, stream_sequence=4, stream_final=False, ttl_ms=9)
)


def decoded(data: bytes) -> EventEnvelope | None:
    try:
        return CODEC.decode_unchecked(data)
    except EventValidationError as error:
        refusal = error
    assert refusal.field
    assert refusal.reason
    return None


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from([SOUND, RICH])))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) - 1))
        edit = draw(st.sampled_from(["replace", "insert", "remove", "repeat"]))
        if edit == "replace":
            data[at] = draw(st.integers(0, 255))
        elif edit == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=12))
        elif edit == "remove":
            del data[at : at + draw(st.integers(1, 20))]
        else:
            data[at:at] = data[at : at + draw(st.integers(1, 20))]
        if not data:
            break
    return bytes(data)


@settings(deadline=None)
@given(mutated())
def test_damaged_bytes_are_refused_or_are_another_event(data: bytes) -> None:
    event = decoded(data)
    if event is not None:
        assert CODEC.decode_unchecked(reference_bytes(event)) == event


@settings(deadline=None)
@given(mutated())
def test_the_fast_decoder_accepts_only_what_the_careful_one_reads_the_same(data: bytes) -> None:
    if data[:10] != SOUND[:10]:
        return
    try:
        fast = decode_body(data, 10)
    except EventValidationError:
        fast = None
    if fast is not None:
        assert from_record(CURRENT.read(data, 10)) == fast


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    assert decoded(data) is None


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_an_arbitrary_body_is_refused(data: bytes) -> None:
    assert decoded(SOUND[:10] + data) is None


@settings(deadline=None)
@given(envelopes(canonical_values), st.data())
def test_a_signed_event_with_changed_bits_is_refused(event: EventEnvelope, data: st.DataObject) -> None:
    sound = VERIFYING.encode(SIGNER.sign(event))
    bits = data.draw(st.sets(st.integers(0, len(sound) * 8 - 1), min_size=1, max_size=3))
    changed = bytearray(sound)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    try:
        VERIFYING.decode(bytes(changed))
    except EventValidationError:
        return
    raise AssertionError(f"accepted with the bits {sorted(bits)} changed")
