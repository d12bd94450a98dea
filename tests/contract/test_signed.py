"""Records that are signed: where signatures are required, only what a known key put into its place counts."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.log.port import EventLog, Outgoing
from noesium_stream.log.record import Record
from tests.support.backends import Backend
from tests.support.events import counted
from tests.support.reading import numbers, stored

ANN = Signer(Ed25519PrivateKey.generate(), "ann")
REQUIRED = Verifier({"ann": ANN.public_key}, required=True)


async def signing(backend: Backend) -> EventLog:
    return await backend.open(signer=ANN, verifier=REQUIRED)


async def test_what_is_appended_is_signed_and_read_by_who_knows_the_key(backend: Backend) -> None:
    log = await signing(backend)
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(70)])
    await log.publish(counted(70, "k"))
    assert sorted(numbers(await stored(log, topic))) == list(range(71))
    plain = await backend.open()
    assert len(await stored(plain, topic)) == 71


async def test_what_a_writer_commits_is_signed_with_its_headers(backend: Backend) -> None:
    log = await signing(backend)
    topic = log.topology.journal("tester")
    writer = await log.writer("w")
    await writer.commit([Outgoing(counted(1, "k"), topic, 0, "k", (("noesium_seq", b"0"),))])
    transaction = await writer.begin()
    for n in (2, 3):
        await transaction.write([Outgoing(counted(n, "k"), topic, 0, "k", (("noesium_seq", b"%d" % n),))])
    await transaction.commit()
    await writer.close()
    records = await stored(log, topic)
    assert numbers(records) == [1, 2, 3]
    assert [record.header("noesium_seq") for record in records] == [b"0", b"2", b"3"]


async def test_what_nobody_signed_is_read_by_nobody(backend: Backend) -> None:
    log = await signing(backend)
    topic = log.topology.events("demo")
    await log.append([counted(1, "k")])
    stranger = await backend.open()
    await stranger.append([counted(2, "k")])
    first, second = await stored(log, topic)
    assert first.envelope.payload["n"] == 1
    for look in (lambda: second.envelope, lambda: second.headers, lambda: second.newest, second.prove):
        with pytest.raises(CorruptRecordError, match="only signed records are accepted"):
            look()
    assert second.unchecked.payload["n"] == 2, "tools can show it"


@pytest.mark.parametrize("change", ["topic", "partition", "key", "header", "value", "nothing"])
async def test_signed_bytes_count_in_their_place_alone(backend: Backend, change: str) -> None:
    log = await signing(backend)
    topic = log.topology.events("demo")
    [position] = await log.append([counted(1, "k")])
    await log.append([counted(2, "k")], topic=log.topology.events("shop"))
    [record] = await stored(log, topic)
    headers = [(name, value) for name, value in record.headers if name != "noesium_commit"]
    assert any(name == "noesium_proof" for name, _ in headers)
    if change == "header":
        headers.insert(0, ("noesium_seq", b"5"))
    there = log.topology.events("shop") if change == "topic" else topic
    partition = (position.partition + 1) % 4 if change == "partition" else position.partition
    key = "other" if change == "key" else "k"
    value = record.value.replace(b"k", b"j", 1) if change == "value" else record.value
    await backend.inject(there, partition, key, headers, value)
    copies = [
        r for r in await stored(log, there) if (r.partition, r.offset) != position[1:] or there != topic
    ]
    copy = next(r for r in copies if names_a_proof_of(r, headers))
    if change == "nothing":
        assert copy.envelope == record.envelope, "the same in its place: readers know it by its event_id"
        return
    with pytest.raises(CorruptRecordError, match="not of this record in this place"):
        copy.prove()


def names_a_proof_of(record: Record, headers: list[tuple[str, bytes]]) -> bool:
    proof = [pair for pair in headers if pair[0] == "noesium_proof"]
    return [pair for pair in record.raw_headers if pair[0] == "noesium_proof"] == proof
