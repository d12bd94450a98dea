"""Who holds the key of one name says nothing in another's, wherever the brokers let him write."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.client import Client, Run
from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.standard import AgentHeartbeat, ApprovalAnswered, RunCancelRequested
from noesium_stream.event.trust.policy import Policy
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.log.port import EventLog, Outgoing
from noesium_stream.log.record import Record
from noesium_stream.worker import Worker
from tests.security.test_signatures import asking, letters
from tests.support.backends import Backend
from tests.support.events import counted
from tests.support.reading import PATIENCE_S, eventually, stored

SIGNERS = {name: Signer(Ed25519PrivateKey.generate(), name) for name in ("alice", "mallory", "worker")}
NAMES = {"alice": ["alice"], "mallory": ["mallory", "agent:other"], "worker": ["agent:sample"]}
REQUIRED = Verifier(
    {name: TrustedKey(name, signer.public_key, frozenset(NAMES[name])) for name, signer in SIGNERS.items()},
    required=True,
)


ANYTHING = Policy.model_validate({"allow": [{"who": ["*"], "may": ["*"]}]})


async def opened(backend: Backend, name: str) -> EventLog:
    """A log with somebody's key; an attacker's program checks nothing before it writes."""
    return await backend.open(signer=SIGNERS[name], **({} if name == "mallory" else {"verifier": REQUIRED}))


async def test_each_acts_in_his_own_name_alone(backend: Backend, tmp_path: Path) -> None:
    logs = {name: await opened(backend, name) for name in SIGNERS}
    async with (
        Client(logs["alice"], agent_id="alice") as alice,
        Client(logs["mallory"], agent_id="alice") as forger,
        Client(logs["mallory"], agent_id="mallory") as mallory,
        Worker(logs["worker"], [asking()], home=tmp_path, policy=ANYTHING),
    ):
        run = await alice.start("sample", {"n": 1})
        await eventually(lambda: run.approvals())
        [question] = await run.approvals()
        await forger.start("sample", {"n": 2})
        await forger.run_handle("sample", run.id).cancel("alice says so")
        answer = ApprovalAnswered(
            run_id=run.id,
            approval_id=question.approval_id,
            fingerprint=question.fingerprint,
            approved=True,
            answered_by="alice",
        )
        event = answer.to_envelope(AgentRef("mallory", "client"), None, None, partition_key=run.id)
        await logs["mallory"].append([event.replace(metadata={"to": "sample"})])

        async def all_refused() -> bool:
            return len(await letters(logs["worker"])) == 3

        await eventually(all_refused)
        reasons = await letters(logs["worker"])
        assert all("the key 'mallory' may not speak for 'alice'" in reason for reason in reasons)
        own = await mallory.start("sample", {"n": 3})
        await eventually(lambda: own.approvals())
        await run.approve(value="yes")
        assert (await run.result(timeout=PATIENCE_S))["said"] == "yes"


async def test_another_agents_key_neither_writes_a_journal_nor_speaks_for_its_workers(
    backend: Backend,
) -> None:
    theirs = await opened(backend, "mallory")
    log = await opened(backend, "worker")
    journal = log.topology.journal("sample")
    writer = await theirs.writer("w")
    await writer.commit([Outgoing(counted(1, "k"), journal, 0, "k", (("noesium_seq", b"0"),))])
    await writer.close()
    [record] = await stored(log, journal)
    assert "may not speak for agent:sample, whose journal it is" in _refusal(record)
    beat = AgentHeartbeat(
        agent_id="sample", agent_type="sample", instance_id="x", sequence=0, open_runs=0, interval_ms=1
    ).to_envelope(AgentRef("sample", "sample"), None, None)
    await theirs.append([beat])
    [record] = await stored(log, log.topology.heartbeat)
    assert "may not speak for 'agent:sample'" in _refusal(record)


async def test_a_key_counts_from_and_until_by_the_logs_time(backend: Backend) -> None:
    signer = SIGNERS["alice"]
    log = await backend.open(signer=signer, verifier=REQUIRED)
    topic = log.topology.events("demo")
    producer = AgentRef("alice", "client")
    await log.append([counted(1, "k").replace(producer=producer)])
    [record] = await stored(log, topic)
    at_ms = record.timestamp_ms
    for bounds, refused in (
        ({"not_before_ms": at_ms, "not_after_ms": at_ms + 1, "revoked_ms": at_ms + 1}, False),
        ({"not_before_ms": at_ms + 1}, True),
        ({"not_after_ms": at_ms}, True),
        ({"revoked_ms": at_ms}, True),
    ):
        key = TrustedKey("alice", signer.public_key, frozenset({"alice"}), **bounds)
        reader = await backend.open(verifier=Verifier({"alice": key}, required=True))
        [record] = await stored(reader, topic)
        assert bool(_refusal(record)) == refused, bounds


async def test_what_is_deferred_is_judged_by_its_own_signature(backend: Backend, tmp_path: Path) -> None:
    """A request that no worker can take yet is signed for the inbox; its copy in the journal is taken up."""
    logs = {name: await opened(backend, name) for name in SIGNERS}
    agent = asking()
    newer = type("Newer", (agent,), {"version": "2.0.0"})
    async with (
        Client(logs["alice"], agent_id="alice") as alice,
        Client(logs["mallory"], agent_id="alice") as forger,
    ):
        async with Worker(logs["worker"], [agent], home=tmp_path / "a", policy=ANYTHING):
            run = await alice.start("sample", {"n": 1}, version="^2")
            forged = await forger.start("sample", {"n": 2}, version="^2")
            await eventually(lambda: _parked(run))
        async with Worker(logs["worker"], [newer], home=tmp_path / "b", policy=ANYTHING):
            await eventually(lambda: run.approvals())
            await run.approve(value="yes")
            assert (await run.result(timeout=PATIENCE_S))["said"] == "yes"
            assert [reason for reason in await letters(logs["worker"]) if "may not speak" in reason]
            journal = await stored(logs["worker"], logs["worker"].topology.journal("sample"))
            assert "run.started" not in {r.event_type for r in journal if r.key == forged.id}


async def _parked(run: Run) -> bool:
    return (await run.info()).status == "deferred"


def _refusal(record: Record) -> str:
    try:
        record.envelope  # noqa: B018
    except CorruptRecordError as error:
        return str(error)
    return ""


async def test_a_cancel_of_ones_own_run_is_heard(backend: Backend, tmp_path: Path) -> None:
    logs = {name: await opened(backend, name) for name in SIGNERS}
    async with (
        Client(logs["alice"], agent_id="alice") as alice,
        Worker(logs["worker"], [asking()], home=tmp_path, policy=ANYTHING),
    ):
        run = await alice.start("sample", {"n": 1})
        await eventually(lambda: run.approvals())
        await run.cancel()
        types = [event.event_type async for event in run.events()]
        assert types[-1] == "run.cancelled"
        assert RunCancelRequested.TYPE in types
