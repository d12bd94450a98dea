from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.errors import (
    ConfigError,
    CorruptRecordError,
    EventValidationError,
    SignatureError,
    UnknownSchemaError,
)
from noesium_stream.event import EnvelopeCodec, SignatureBlock, Signer, Verifier, canonical_envelope
from noesium_stream.log.record import Record
from tests.support.envelopes import envelope, open_catalogue, pretty, reference_bytes, with_body

SIGNER = Signer(bytes(range(32)), "key-1")
OTHER = Signer(bytes(32), "key-2")
VERIFIER = Verifier({"key-1": SIGNER.public_key, "key-2": OTHER.public_key.public_bytes_raw()})
CODEC = EnvelopeCodec(open_catalogue(), verifier=VERIFIER)
SIGNED = SIGNER.sign(envelope(extensions={"b": 1, "a": [1.5]}))
DATA = CODEC.encode(SIGNED)


def test_a_signed_event_is_read_when_its_key_is_known() -> None:
    assert CODEC.decode(DATA) == SIGNED
    assert SIGNED.signature is not None
    assert SIGNED.signature.algorithm == "Ed25519"


def test_every_flipped_bit_of_a_signed_event_is_refused() -> None:
    accepted = []
    for bit in range(len(DATA) * 8):
        changed = bytearray(DATA)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            CODEC.decode(bytes(changed))
        except EventValidationError as error:
            refusal = error
        else:
            accepted.append(bit)
            continue
        assert refusal.field
        assert refusal.reason
    assert accepted == []


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": {"text": "other"}},
        {"metadata": {}},
        {"timestamp_ms": 1},
        {"ttl_ms": 5},
        {"event_version": "1.0.1"},
        {"stream_final": True},
        {"extensions": {}},
        {"causation_id": None},
    ],
)
def test_a_changed_field_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SignatureError, match="not what was signed"):
        CODEC.decode(CODEC.encode(SIGNED.replace(**changes)))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"payload": pretty(SIGNED.payload)}, "not what was signed"),
        ({"metadata": '{"to": "librarian"}'}, "not what was signed"),
        (
            {"payload": '{"nothing":null,"text":"Grüße","count":3,"ratio":0.5,"list":[1,{"a":true}]}'},
            "not what was signed",
        ),
        (
            {"payload": '{"count":3.0,"list":[1,{"a":true}],"nothing":null,"ratio":0.5,"text":"Grüße"}'},
            "not what was signed",
        ),
        (
            {"payload": '{"count":3,"list":[1,{"a":true}],"nothing":null,"ratio":5e-1,"text":"Grüße"}'},
            "not what was signed",
        ),
        ({"extensions": {"b": "1", "a": "[1.5]"}}, "canonical"),
    ],
)
def test_the_same_values_in_other_bytes_are_refused(changes: dict[str, Any], what: str) -> None:
    signature = SIGNED.signature
    assert signature is not None
    block = {name: getattr(signature, name) for name in SignatureBlock.__slots__}
    canonical = {
        "payload": '{"count":3,"list":[1,{"a":true}],"nothing":null,"ratio":0.5,"text":"Grüße"}',
        "metadata": '{"to":"librarian"}',
        "extensions": {"a": "[1.5]", "b": "1"},
        "signature": block,
    }
    plain = envelope()
    assert with_body(plain, **canonical) == DATA
    with pytest.raises(SignatureError, match=what):
        CODEC.decode(with_body(plain, **{**canonical, **changes}))


def test_a_number_in_a_longer_form_is_refused_in_a_signed_event() -> None:
    assert DATA.endswith(b"\x00")
    cut = DATA.index(b"\x04\x02a")
    longer = DATA[:cut] + b"\x03\x1c" + DATA[cut + 1 :]
    with pytest.raises(EventValidationError):
        CODEC.decode(longer)


def test_a_signature_of_an_unknown_key_is_refused() -> None:
    codec = EnvelopeCodec(open_catalogue(), verifier=Verifier({"key-2": OTHER.public_key}))
    with pytest.raises(SignatureError, match="not known") as caught:
        codec.decode(DATA)
    assert caught.value.field == "signature.public_key_id"


def test_a_codec_without_keys_refuses_signed_events_but_shows_them() -> None:
    codec = EnvelopeCodec(open_catalogue())
    with pytest.raises(SignatureError, match="not known"):
        codec.decode(DATA)
    assert codec.decode_unchecked(DATA) == SIGNED


def test_a_verifier_is_asked_before_the_catalogue() -> None:
    unknown = SIGNER.sign(envelope(event_type="never.heard"))
    data = with_body(
        envelope(event_type="never.heard"),
        signature={n: getattr(SIGNED.signature, n) for n in SignatureBlock.__slots__},
    )
    with pytest.raises(SignatureError):
        CODEC.decode(data)
    with pytest.raises(UnknownSchemaError):
        CODEC.encode(unknown)


def test_decode_unchecked_verifies_when_there_are_keys() -> None:
    assert CODEC.decode_unchecked(DATA) == SIGNED
    with pytest.raises(SignatureError):
        CODEC.decode_unchecked(CODEC.encode(SIGNED.replace(ttl_ms=5)))


def test_where_signatures_are_required_the_record_has_to_be_signed() -> None:
    plain = reference_bytes(envelope())
    strict = EnvelopeCodec(open_catalogue(), verifier=Verifier({"key-1": SIGNER.public_key}, required=True))
    assert strict.decode(DATA) == SIGNED
    assert strict.decode(plain) == envelope(), "the bytes of an event; its record may be signed"
    for value in (plain, DATA):
        record = Record("demo.events.x", 0, 0, 0, "k", [], value, strict)
        with pytest.raises(CorruptRecordError, match="only signed records are accepted"):
            record.envelope  # noqa: B018
        assert record.unchecked is not None
    with pytest.raises(SignatureError, match="missing"):
        Verifier({"key-1": SIGNER.public_key}, required=True).verify(envelope())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("algorithm", "ed25519"),
        ("algorithm", "none"),
        ("public_key_id", "key-2"),
        ("signature", "AAAA"),
        ("signature", "not base64!"),
        ("signature", "ü"),
    ],
)
def test_a_malformed_signature_block_is_refused(field: str, value: str) -> None:
    assert SIGNED.signature is not None
    block = {name: getattr(SIGNED.signature, name) for name in SignatureBlock.__slots__}
    with pytest.raises(SignatureError):
        CODEC.decode(CODEC.encode(SIGNED.replace(signature=SignatureBlock(**{**block, field: value}))))


def test_spare_bits_and_padding_of_base64_are_refused() -> None:
    assert SIGNED.signature is not None
    text = SIGNED.signature.signature
    raw = base64.urlsafe_b64decode(text + "==")
    twins = [text + "=="] + [
        text[:-1] + letter
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        if letter != text[-1] and base64.urlsafe_b64decode(text[:-1] + letter + "==") == raw
    ]
    assert len(twins) > 10
    for twin in twins:
        with pytest.raises(SignatureError, match="base64"):
            CODEC.decode(CODEC.encode(SIGNED.replace(signature=SignatureBlock("Ed25519", "key-1", twin))))


def test_unknown_fields_of_a_signature_are_refused() -> None:
    form = SIGNED.to_dict()
    form["signature"]["note"] = "nobody signed this"
    with pytest.raises(EventValidationError) as caught:
        type(SIGNED).from_dict(form)
    assert caught.value.field == "signature.note"


def test_signing_again_replaces_the_signature() -> None:
    again = OTHER.sign(SIGNED)
    assert again.signature is not None
    assert again.signature.public_key_id == "key-2"
    assert canonical_envelope(again) == canonical_envelope(SIGNED)
    assert CODEC.decode(CODEC.encode(again)) == again


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"n": 2**53}, "payload.n"),
        ({"n": -(2**53)}, "payload.n"),
        ({"n": [1e17]}, "payload.n.0"),
        ({"n": float("nan")}, "payload.n"),
        ({"n": "\ud800"}, "payload.n"),
    ],
)
def test_what_has_no_canonical_form_is_not_signed(payload: dict[str, Any], field: str) -> None:
    with pytest.raises(EventValidationError) as caught:
        SIGNER.sign(envelope(payload=payload))
    assert caught.value.field == field


def test_keys_that_are_none_are_refused_without_showing_them() -> None:
    with pytest.raises(ConfigError, match="32 bytes"):
        Signer(b"secret-but-short", "key")
    with pytest.raises(ConfigError, match="needs an id"):
        Signer(Ed25519PrivateKey.from_private_bytes(bytes(32)), "")
    with pytest.raises(ConfigError, match="key-9"):
        Verifier({"key-9": b"short"})
    with pytest.raises(ConfigError, match="same public key"):
        Verifier({"a": SIGNER.public_key, "b": SIGNER.public_key})
