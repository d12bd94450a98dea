"""Who has a key and no right: each request is refused, the sender is told, and the log says so."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.client import Client
from noesium_stream.client.operate.fork import fork
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ApprovalError, PermissionDeniedError, RunFailedError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.standard import ReplyTo, RunRequested
from noesium_stream.event.trust.policy import Policy
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.worker import Worker
from tests.security.test_signatures import asking, letters
from tests.support.backends import Backend
from tests.support.reading import PATIENCE_S, eventually
from tests.support.sample_agents import Asker, Echo

NAMES = {
    "alice": ["alice"],
    "bob": ["bob", "role:auditor"],
    "mallory": ["mallory"],
    "worker": ["agent:sample"],
}
SIGNERS = {name: Signer(Ed25519PrivateKey.generate(), name) for name in NAMES}
REQUIRED = Verifier(
    {name: TrustedKey(name, signer.public_key, frozenset(NAMES[name])) for name, signer in SIGNERS.items()},
    required=True,
)
POLICY = Policy.model_validate(
    {
        "allow": [
            {"who": ["alice"], "may": ["start", "cancel"], "agents": ["sample"]},
            {"who": ["role:auditor"], "may": ["answer"], "questions": ["ask"]},
        ]
    }
)


async def test_a_request_without_a_right_is_refused_and_told(backend: Backend, tmp_path: Path) -> None:
    logs = {name: await backend.open(signer=signer, verifier=REQUIRED) for name, signer in SIGNERS.items()}
    async with (
        Client(logs["alice"], agent_id="alice") as alice,
        Client(logs["bob"], agent_id="bob") as bob,
        Client(logs["mallory"], agent_id="mallory") as mallory,
        Worker(logs["worker"], [asking()], home=tmp_path, policy=POLICY),
    ):
        refused = await mallory.start("sample", {"n": 1})
        with pytest.raises(PermissionDeniedError, match="'mallory' may not start runs of sample"):
            await refused.result(timeout=PATIENCE_S)
        assert (await refused.info()).status == "refused"
        run = await alice.start("sample", {"n": 1})
        await eventually(lambda: run.approvals())
        theirs = mallory.run_handle("sample", run.id)
        await theirs.cancel()
        await theirs.signal("now", 1)
        with suppress(ApprovalError):  # told at once if the owner was as quick
            await theirs.approve(value="yes, says mallory")
        await alice.run_handle("sample", run.id).signal("now", 2)

        async def all_refused() -> bool:
            return len(await letters(logs["worker"])) == 4

        await eventually(all_refused)
        assert await run.cancel_request() is None
        assert [question.status for question in await run.approvals()] == ["open"]
        assert sorted(reason.partition(" of ")[0] for reason in await letters(logs["worker"])) == [
            "'alice' may not signal runs",
            "'mallory' may not answer questions",
            "'mallory' may not cancel runs",
            "'mallory' may not signal runs",
        ]
        await bob.run_handle("sample", run.id).approve(value="yes, says bob")
        assert (await run.result(timeout=PATIENCE_S))["said"] == "yes, says bob"
        forked = await fork(alice, run, 0, {})
        with pytest.raises(PermissionDeniedError, match="'alice' may not fork runs of sample"):
            await forked.result(timeout=PATIENCE_S)


async def test_where_signatures_are_required_nothing_is_allowed_without_a_policy(
    backend: Backend, tmp_path: Path
) -> None:
    logs = {name: await backend.open(signer=signer, verifier=REQUIRED) for name, signer in SIGNERS.items()}
    async with (
        Client(logs["alice"], agent_id="alice") as alice,
        Worker(logs["worker"], [asking()], home=tmp_path),
    ):
        run = await alice.start("sample", {"n": 1})
        with pytest.raises(PermissionDeniedError):
            await run.result(timeout=PATIENCE_S)


async def test_a_refusal_stays_whatever_the_policy_says_later(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open()
    async with Client(log, agent_id="alice") as alice:
        async with Worker(log, [asking()], home=tmp_path / "a", policy=Policy()):
            run = await alice.start("sample", {"n": 1}, idempotency_key="k")
            with pytest.raises(PermissionDeniedError):
                await run.result(timeout=PATIENCE_S)
        async with Worker(log, [asking()], home=tmp_path / "b", policy=POLICY):
            again = await alice.start("sample", {"n": 1}, idempotency_key="k")
            with pytest.raises(PermissionDeniedError):
                await again.result(timeout=PATIENCE_S)
            other = await alice.start("sample", {"n": 1})
            await eventually(lambda: other.approvals())


async def test_a_call_that_is_not_allowed_fails_the_step_that_makes_it(
    backend: Backend, tmp_path: Path
) -> None:
    log = await backend.open()
    allowed = {"who": ["alice"], "may": ["start"]}, {"who": ["agent:echo"], "may": ["register"]}
    policy = Policy.model_validate({"allow": list(allowed)})
    more = Policy.model_validate({"allow": [*allowed, {"who": ["agent:asker"], "may": ["start"]}]})
    async with Client(log, agent_id="alice") as alice:
        async with Worker(log, [Asker, Echo], home=tmp_path / "a", policy=policy):
            run = await alice.start("asker", {"words": ["a"]})
            with pytest.raises(RunFailedError, match="'agent:asker' may not start runs of echo"):
                await run.result(timeout=PATIENCE_S)
        async with Worker(log, [Asker, Echo], home=tmp_path / "b", policy=more):
            run = await alice.start("asker", {"words": ["a"]})
            assert (await run.result(timeout=PATIENCE_S))["replies"] == ["A"]


async def test_who_lets_a_run_answer_to_people_gives_no_other_person_a_right(
    backend: Backend, tmp_path: Path
) -> None:
    """A run's calling agent may cancel it; people and programs share one agent type."""
    log = await backend.open()
    run_id = SystemClock().uuid7()
    asked = RunRequested(
        run_id=run_id,
        agent_type="sample",
        input={},
        reply_to=ReplyTo(agent_type="client", run_id=run_id, call_id="call"),
    )
    alice = AgentRef("alice", "client")
    command = root_event(asked, alice, SystemClock(), partition_key=run_id, metadata={"to": "sample"})
    async with (
        Client(log, agent_id="mallory") as mallory,
        Worker(log, [asking()], home=tmp_path, policy=POLICY),
    ):
        await log.append([command])
        run = mallory.run_handle("sample", run_id)
        await eventually(lambda: run.approvals())
        await run.cancel()
        await eventually(lambda: letters(log))
        assert "'mallory' may not cancel runs of sample" in (await letters(log))[0]
