"""A journal's copies prove who sent what they copy: with the sender's own signature, not the owner's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.errors import SignatureError
from noesium_stream.event import AgentRef, EventEnvelope
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.record_proofs import PROOF, RecordSigner, RecordVerifier
from noesium_stream.event.standard import RunRequested
from noesium_stream.log.headers import ORIGIN, SENDER, SOURCE, header_value
from noesium_stream.log.prepare import standard_headers
from noesium_stream.log.record import Record
from noesium_stream.log.sender_proof import SENDER_BYTES, copied, sender_record
from noesium_stream.log.topics import partition_of
from noesium_stream.worker import Worker
from tests.security.test_signatures import asking
from tests.security.test_speaking import ANYTHING, REQUIRED, SIGNERS
from tests.support.backends import PARTITIONS, Backend
from tests.support.events import catalogue
from tests.support.reading import PATIENCE_S, eventually, stored

INBOX = "noesium.agent.sample.inbox"


def sender_of(copy: Record) -> str | None:
    """The key that signed the record of which this is a copy."""
    found = sender_record(copy.raw_headers, copy.value)
    if found is None:
        return None
    headers: Any = found.headers
    key = RecordVerifier(REQUIRED).check(found.topic, found.partition, copy.key, headers, found.value)
    assert key is not None
    return key.key_id


async def copies(run: Run) -> dict[str, Record]:
    """The copies in the journal of a run, by type."""
    records = [record async for record in run.records(follow=False)]
    return {record.event_type: record for record in records if record.header(SOURCE) is not None}


async def test_commands_answers_and_cancels_keep_their_senders_proof(
    backend: Backend, tmp_path: Path
) -> None:
    logs = {name: await backend.open(signer=signer, verifier=REQUIRED) for name, signer in SIGNERS.items()}
    async with (
        Client(logs["alice"], agent_id="alice") as alice,
        Client(logs["mallory"], agent_id="mallory") as other,
        Worker(logs["worker"], [asking()], home=tmp_path, policy=ANYTHING),
    ):
        run = await alice.start("sample", {"n": 1})
        await eventually(lambda: run.approvals())
        await other.run_handle("sample", run.id).approve(value="yes")
        await run.result(timeout=PATIENCE_S)
        found = await copies(run)
        assert {kind: sender_of(copy) for kind, copy in found.items()} == {
            "run.requested": "alice",
            "approval.answered": "mallory",
        }
        assert all(copy.signed_by and copy.signed_by.key_id == "worker" for copy in found.values())
        asked = await stored(logs["worker"], logs["worker"].topology.inbox("sample"))
        first = sender_record(found["run.requested"].raw_headers, found["run.requested"].value)
        assert first is not None
        assert (first.value, first.at_ms) == (asked[0].value, asked[0].timestamp_ms)
        assert first.headers == [pair for pair in asked[0].raw_headers if pair[0] != "noesium_commit"]
        again = await alice.start("sample", {"n": 1})
        await eventually(lambda: again.approvals())
        await again.cancel()
        assert [event.event_type async for event in again.events()][-1] == "run.cancelled"
        assert sender_of((await copies(again))["run.cancel.requested"]) == "alice"


async def test_a_deferred_request_keeps_the_proof_of_the_inbox(backend: Backend, tmp_path: Path) -> None:
    logs = {name: await backend.open(signer=signer, verifier=REQUIRED) for name, signer in SIGNERS.items()}
    agent = asking()
    newer = type("Newer", (agent,), {"version": "2.0.0"})

    async def deferred(run: Run) -> bool:
        return (await run.info()).status == "deferred"

    async with Client(logs["alice"], agent_id="alice") as alice:
        async with Worker(logs["worker"], [agent], home=tmp_path / "a", policy=ANYTHING):
            run = await alice.start("sample", {"n": 1}, version="^2")
            await eventually(lambda: deferred(run))
        async with Worker(logs["worker"], [newer], home=tmp_path / "b", policy=ANYTHING):
            await eventually(lambda: run.approvals())
        assert sender_of((await copies(run))["run.requested"]) == "alice"


def command(run_id: str = "0" * 32, **fields: Any) -> EventEnvelope:
    """A command, as a client makes it."""
    made = RunRequested(run_id=run_id, agent_type="sample", input={"n": 1}, **fields)
    return made.to_envelope(AgentRef("alice", "client"), None, None, partition_key=run_id)


def received(event: EventEnvelope, headers: list[tuple[str, bytes]], codec: EnvelopeCodec) -> Record:
    """A command that alice signed, with these headers, read by a worker."""
    key, value = str(event.partition_key), EnvelopeCodec(catalogue()).encode(event)
    partition = partition_of(key, PARTITIONS)
    [proof] = RecordSigner(SIGNERS["alice"]).prove([(INBOX, partition, key, headers, value)])
    return Record(INBOX, partition, 7, 1_700_000_000_000, key, [*headers, proof], value, codec)


def copy_of(source: Record, *more: tuple[str, bytes]) -> Record | None:
    """The copy that an owner makes; None: without a proof."""
    event, proof = copied(source.envelope, source)
    codec = EnvelopeCodec(catalogue())
    value = event.value if hasattr(event, "value") else codec.encode(event)
    origin = [pair for pair in source.raw_headers if pair[0] == ORIGIN]
    headers = [*standard_headers(source.envelope), ("noesium_seq", b"0"), *origin, *proof, *more]
    return Record("j", 0, 0, 0, source.key, headers, value, codec) if proof else None


FOREIGN: Any = [
    ("noesium_origin", b"a/0"),
    ("x", b"\xff\x00"),
    ("y", None),
    ("noesium_seq", b"9"),
    ("ö", b""),
]


@pytest.mark.parametrize("plain", [True, False])
def test_a_proof_of_other_headers_or_another_form_is_kept_with_them(plain: bool) -> None:
    codec = EnvelopeCodec(catalogue(), verifier=REQUIRED)
    event = command()
    for headers in ([], FOREIGN, [*standard_headers(event), *FOREIGN], standard_headers(event)[::-1]):
        source = received(event, headers, codec)
        if not plain:
            codec._header = b"\x00\x00\x00\x00\x01"  # a registry's format: the value is in another one
        copy = copy_of(source)
        assert copy is not None
        assert sender_of(copy) == "alice"
        found = sender_record(copy.raw_headers, copy.value)
        assert found is not None
        assert found.value == source.value
        codec._header = EnvelopeCodec().frame


def test_a_forwarded_request_keeps_the_proof_of_its_first_sender() -> None:
    codec, event = EnvelopeCodec(catalogue(), verifier=REQUIRED), command()
    _, proof = copied(event, received(event, standard_headers(event), codec))
    headers = [*standard_headers(event), ("noesium_logged", b"7"), *proof]
    place, key, value = (f"{INBOX}.g2", 5), str(event.partition_key), codec.encode(event)
    for signer, expected in (("worker", "alice"), ("mallory", "mallory")):
        [signed] = RecordSigner(SIGNERS[signer]).prove([(*place, key, headers, value)])
        forwarded = Record(*place, 0, 9, key, [*headers, signed], value, codec)
        _, kept = copied(event, forwarded)
        copy = Record("j", 0, 0, 0, key, [*standard_headers(event), *kept], value, codec)
        assert sender_of(copy) == expected


def test_a_proof_that_does_not_fit_or_that_nobody_verified_is_not_kept() -> None:
    codec, event = EnvelopeCodec(catalogue(), verifier=REQUIRED), command()
    assert copy_of(received(event, [("x", b"x" * SENDER_BYTES)], codec)) is None
    assert copy_of(received(event, [], EnvelopeCodec(catalogue()))) is None


def test_a_sender_cannot_hand_over_a_proof_of_somebody_else() -> None:
    codec = EnvelopeCodec(catalogue(), verifier=REQUIRED)
    forged = json.dumps({"proof": "1 worker 0 1  x", "topic": INBOX, "partition": 0, "at": 0}).encode()
    copy = copy_of(received(command(), [(SENDER, forged)], codec))
    assert copy is not None
    assert sender_of(copy) == "alice"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"[" * 8_000,
        b"9" * 8_000,
        b"\xff",
        b'{"proof": 1, "topic": "t", "partition": 0, "at": 0}',
        b'{"proof": "p", "topic": "\\ud800", "partition": 0, "at": 0}',
        b'{"proof": "p", "topic": "t", "partition": true, "at": 0}',
        b'{"proof": "p", "topic": "t", "partition": 0, "at": 1e9}',
        b'{"proof": "p", "topic": "t", "partition": 0, "at": 999999999999999}',
        b'{"proof": "\xc3\xa9", "topic": "t", "partition": 0, "at": 0}',
        b'{"proof": "p", "topic": "t", "partition": 0, "at": 0, "headers": [["a"]]}',
        b'{"proof": "p", "topic": "t", "partition": 0, "at": 0, "headers": 7}',
        b'{"proof": "p", "topic": "t", "partition": 0, "at": 0, "headers": [["a", "\xe2\x82\xac"]]}',
        b'{"proof": "p", "topic": "t", "partition": 0, "at": 0, "value": "?"}',
        b'{"proof": "p", "topic": "t", "partition": 0, "at": 0, "value": null}',
        b'{"proof": "p", "topic": "t", "partition": 0, "at": 0}' + b" " * SENDER_BYTES,
    ],
)
def test_a_header_that_no_receiver_writes_is_refused(data: bytes) -> None:
    with pytest.raises(SignatureError, match="noesium_sender: has another form"):
        sender_record([(SENDER, data)], b"")


def test_the_proof_of_a_command_costs_less_than_four_hundred_bytes() -> None:
    codec, event = EnvelopeCodec(catalogue(), verifier=REQUIRED), command()
    headers = standard_headers(event)
    key, value = str(event.partition_key), codec.encode(event)
    records = [(INBOX, 3, key, headers, value)] * 64
    sizes = []
    for count in (1, 64):
        proof = RecordSigner(SIGNERS["alice"]).prove(records[:count])[-1]
        source = Record(INBOX, 3, 7, 1_700_000_000_000, key, [*headers, proof], value, codec)
        _, [(_, kept)] = copied(event, source)
        assert header_value(source.raw_headers, PROOF) == proof[1]
        sizes.append(len(kept))
    assert sizes[0] < 200
    assert sizes[1] < 464
