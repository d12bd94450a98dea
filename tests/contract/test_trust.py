"""Keys that operators trust and revoke in the registry of a log: what each reader takes, and from when on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.client.operate.keys import list_keys, revoke_key, trust_keys
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ConfigError, CorruptRecordError, SignatureError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.standard import KeyRevoked
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from tests.support.backends import Backend
from tests.support.events import counted
from tests.support.reading import numbers, stored

CLOCK = SystemClock()
OPS = Signer(Ed25519PrivateKey.generate(), "ops")
ALICE = Signer(Ed25519PrivateKey.generate(), "alice-1")
ROOT = Verifier({"ops": OPS.public_key}, required=True)
KEY = TrustedKey("alice-1", ALICE.public_key, frozenset({"alice"}))


async def said_by_alice(log: EventLog, number: int) -> None:
    """Let alice append a fact."""
    await log.append([counted(number, "k").replace(producer=AgentRef("alice", "client"))])


async def test_a_key_counts_for_all_readers_as_soon_as_it_is_trusted(backend: Backend) -> None:
    operator = await backend.open(signer=OPS, verifier=ROOT)
    alice = await backend.open(signer=ALICE, verifier=ROOT)
    reader = await backend.open(verifier=ROOT)
    topic = operator.topology.events("demo")
    await said_by_alice(alice, 1)
    [early] = await stored(reader, topic)
    with pytest.raises(CorruptRecordError, match="'alice-1' is not known"):
        early.prove()
    assert await trust_keys(operator, CLOCK, [KEY]) == [KEY]
    assert await trust_keys(operator, CLOCK, [KEY]) == []
    await said_by_alice(alice, 2)
    assert numbers(await stored(reader, topic)) == [1, 2], "what it signed before counts, too"
    got: list[int] = []
    done = asyncio.Event()

    async def handle(records: Sequence[Record]) -> None:
        got.extend(numbers(records))
        done.set()

    late = await backend.open(verifier=ROOT)
    subscription = await late.subscribe("g", [topic], handle)
    await asyncio.wait_for(done.wait(), 60)
    await subscription.close()
    assert got[0] == 1


async def test_what_a_revoked_key_signs_counts_no_more(backend: Backend) -> None:
    operator = await backend.open(signer=OPS, verifier=ROOT)
    alice = await backend.open(signer=ALICE)
    topic = operator.topology.events("demo")
    await trust_keys(operator, CLOCK, [KEY])
    await said_by_alice(alice, 1)
    [first] = await stored(await backend.open(), topic)
    while CLOCK.now_ms() <= first.timestamp_ms:
        await asyncio.sleep(0.001)
    await revoke_key(operator, CLOCK, "alice-1", reason="lost")
    await said_by_alice(alice, 2)
    reader = await backend.open(verifier=ROOT)
    first, second = await stored(reader, topic)
    assert first.envelope.payload["n"] == 1
    with pytest.raises(CorruptRecordError, match="'alice-1' was revoked at"):
        second.prove()
    [alices] = [listed for listed in await list_keys(operator, CLOCK) if listed.key.key_id == "alice-1"]
    assert alices.status == "revoked"
    with pytest.raises(ConfigError, match="with other content"):
        await trust_keys(operator, CLOCK, [KEY])


async def test_only_operators_say_which_keys_count(backend: Backend) -> None:
    operator = await backend.open(signer=OPS, verifier=ROOT)
    await trust_keys(operator, CLOCK, [KEY])
    alice = await backend.open(signer=ALICE, verifier=ROOT)
    with pytest.raises(ConfigError, match="is not an operator's"):
        await trust_keys(alice, CLOCK, [TrustedKey("more", Ed25519PrivateKey.generate().public_key())])
    with pytest.raises(ConfigError, match="does not sign"):
        await revoke_key(await backend.open(verifier=ROOT), CLOCK, "ops")
    forger = await backend.open(signer=ALICE)
    await forger.append([root_event(KeyRevoked(key_id="ops"), AgentRef("alice", "client"), CLOCK)])
    plain = await backend.open()
    await plain.append([root_event(KeyRevoked(key_id="ops"), AgentRef("keys", "client"), CLOCK)])
    reader = await backend.open(verifier=ROOT)
    assert {listed.key.key_id: listed.status for listed in await list_keys(reader, CLOCK)} == {
        "alice-1": "trusted",
        "ops": "trusted",
    }


async def test_nothing_is_written_in_a_name_that_ones_own_key_does_not_have(backend: Backend) -> None:
    operator = await backend.open(signer=OPS, verifier=ROOT)
    await trust_keys(operator, CLOCK, [KEY])
    verifier = Verifier({"ops": OPS.public_key, "alice-1": KEY}, required=True)
    alice = await backend.open(signer=ALICE, verifier=verifier)
    with pytest.raises(SignatureError, match="may not speak for") as raised:
        await alice.append([counted(1, "k")])
    assert "It speaks for alice" in str(raised.value)
    assert operator.topology.events("demo") not in await operator.layout()
