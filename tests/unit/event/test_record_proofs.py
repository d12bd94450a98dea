"""Proofs of records: each part of a record and its place is covered, and a proof has one form."""

from __future__ import annotations

from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.errors import ConfigError, SignatureError
from noesium_stream.event.record_proofs import PROOF, Headers, Place, RecordSigner, RecordVerifier
from noesium_stream.event.signing import Signer, Verifier

SIGNER = Signer(Ed25519PrivateKey.generate(), "ann-2026")
KEYS = Verifier({"ann-2026": SIGNER.public_key}, required=True)


def place(number: int = 0) -> Place:
    return "demo.events.x", 3, "run-1", [("ce_id", b"%d" % number), ("noesium_seq", b"7")], b"value"


def proven(records: list[Place]) -> list[Place]:
    proofs = RecordSigner(SIGNER).prove(records)
    return [
        (topic, partition, key, [*headers, proof], value)
        for (topic, partition, key, headers, value), proof in zip(records, proofs, strict=True)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 63, 64, 65, 130])
def test_each_record_of_an_append_is_verified_alone(count: int) -> None:
    for record in proven([place(number) for number in range(count)]):
        RecordVerifier(KEYS).check(*record)


def test_nothing_is_signed_for_no_record() -> None:
    assert RecordSigner(SIGNER).prove([]) == []


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize(
    "change",
    [
        {"topic": "demo.events.y"},
        {"partition": 4},
        {"key": "run-2"},
        {"value": b"valu3"},
        {"headers": [("ce_id", b"0"), ("noesium_seq", b"8")]},
        {"headers": [("ce_id", b"0")]},
        {"headers": [("ce_id", b"0"), ("noesium_seq", b"7"), ("more", b"")]},
        {"headers": [("noesium_seq", b"7"), ("ce_id", b"0")]},
        {"headers": [("ce_id", b"0noesium_seq"), ("", b"7")]},
        {"headers": [("ce_id", b"0"), ("noesium_seq", None)]},
    ],
)
def test_another_record_or_place_does_not_verify(change: dict[str, object], count: int) -> None:
    topic, partition, key, headers, value = proven([place(number) for number in range(count)])[0]
    proof = [(name, content) for name, content in headers if name == PROOF]
    parts = {"topic": topic, "partition": partition, "key": key, "headers": place()[3], "value": value}
    parts |= change
    changed: Headers = [*parts.pop("headers"), *proof]  # type: ignore[misc]
    with pytest.raises(SignatureError, match="not of this record in this place"):
        RecordVerifier(KEYS).check(**parts, headers=changed)  # type: ignore[arg-type]


def test_the_number_of_a_commit_is_not_covered() -> None:
    topic, partition, key, headers, value = proven([place()])[0]
    RecordVerifier(KEYS).check(topic, partition, key, [*headers, ("noesium_commit", b"c:0:1")], value)


def test_a_verified_tree_vouches_for_its_own_leaves_alone() -> None:
    verifier = RecordVerifier(KEYS)
    records = proven([place(number) for number in range(4)])
    verifier.check(*records[0])
    topic, partition, key, headers, _ = records[1]
    with pytest.raises(SignatureError):
        verifier.check(topic, partition, key, headers, b"another")
    with pytest.raises(SignatureError):
        verifier.check(topic, partition, key, [*place(9)[3], list(headers)[-1]], b"value")
    for record in records:
        verifier.check(*record)


def test_a_record_without_a_proof_is_refused_where_signatures_are_required_only() -> None:
    with pytest.raises(SignatureError, match="only signed records are accepted"):
        RecordVerifier(KEYS).check(*place())
    RecordVerifier(Verifier({"ann-2026": SIGNER.public_key})).check(*place())


def test_a_proof_by_an_unknown_key_is_refused_even_where_none_is_required() -> None:
    with pytest.raises(SignatureError, match="'ann-2026' is not known here"):
        RecordVerifier(Verifier({})).check(*proven([place()])[0])


@pytest.mark.parametrize(
    "proof",
    [
        None,
        b"",
        b"1",
        b"2 k 0 1  s",
        b"1 k x 1  s",
        b"1 k 1 1  s",
        b"1 k -1 1  s",
        b"1 k 0 99999999999  s",
        "1 k ² 3  s".encode(),
        b"1 k 0 2  s",
        b"1 k 0 1 AAAA s",
        b"1 k 0 1 ? s",
        b"1 k 0 2 " + b"A" * 3_000 + b" s",
        b"\xff" * 20,
    ],
)
def test_a_proof_of_another_form_is_refused(proof: bytes | None) -> None:
    topic, partition, key, headers, value = place()
    with pytest.raises(SignatureError):
        RecordVerifier(KEYS).check(topic, partition, key, [*headers, (PROOF, proof)], value)


def test_no_bit_of_a_proof_can_be_changed() -> None:
    topic, partition, key, headers, value = proven([place(number) for number in range(3)])[1]
    *rest, (_, proof) = headers
    assert proof is not None
    for index in range(len(proof)):
        for bit in (1, 4, 32):
            changed = proof[:index] + bytes((proof[index] ^ bit,)) + proof[index + 1 :]
            with pytest.raises(SignatureError):
                RecordVerifier(KEYS).check(topic, partition, key, [*rest, (PROOF, changed)], value)


def test_two_proofs_are_refused() -> None:
    topic, partition, key, headers, value = proven([place()])[0]
    with pytest.raises(SignatureError, match="twice"):
        RecordVerifier(KEYS).check(topic, partition, key, [*headers, *headers], value)


def test_an_inner_node_is_no_record() -> None:
    """A leaf's hash begins with 0x00 and a node's with 0x01, so that no value can pass for a node."""
    records = proven([place(0), place(1)])
    leaves = [sha256(b"%d" % number).digest() for number in range(2)]
    topic, partition, key, headers, _ = records[0]
    *_, (_, proof) = headers
    assert proof is not None
    shorter = proof.split(b" ")
    shorter[2:5] = [b"0", b"1", b""]
    with pytest.raises(SignatureError):
        RecordVerifier(KEYS).check(
            topic, partition, key, [(PROOF, b" ".join(shorter))], b"\x01" + b"".join(leaves)
        )


@pytest.mark.parametrize("key_id", ["two words", "ann\n", "ä", "x" * 300])
def test_a_key_id_that_cannot_stand_in_a_proof_is_refused(key_id: str) -> None:
    with pytest.raises(ConfigError, match="cannot sign records"):
        RecordSigner(Signer(Ed25519PrivateKey.generate(), key_id))
