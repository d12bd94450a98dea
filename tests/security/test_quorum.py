"""Questions that several people have to approve: nobody counts twice, for others, or for his own request."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.cli.commands.runs.show import collect
from noesium_stream.cli.drawing import draw
from noesium_stream.client import Client
from noesium_stream.client.operate.fork import fork
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.views.causal_tree import causal_tree
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ApprovalError, ConfigError, RunFailedError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.standard import ApprovalAnswered, ForkRef
from noesium_stream.event.trust.policy import Policy
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.kernel import current_step, graph_ref
from noesium_stream.kernel.verify.verifier import ReplayTarget
from noesium_stream.log.headers import ALLOWED
from noesium_stream.worker import Worker
from tests.security.test_signatures import letters
from tests.support.backends import Backend
from tests.support.reading import PATIENCE_S, eventually, stored

NAMES = {
    "alice": ["alice"],
    "bob": ["bob"],
    "carol": ["carol", "role:auditor"],
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
        "roles": {"auditor": ["bob"]},
        "allow": [
            {"who": ["alice"], "may": ["start"]},
            {"who": ["*"], "may": ["answer"], "questions": ["pay"]},
        ],
    }
)


class State(TypedDict, total=False):
    amount: int
    approved: bool
    by: list[str]
    spent: int


async def _pay(state: State) -> State:
    answer = await current_step().interrupt("Pay?", approvers=["alice", "role:auditor"], minimum=2)
    return {"approved": answer.approved, "by": list(answer.approved_by)}


def paying() -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(State)
    graph.add_node("pay", _pay)
    graph.add_edge(START, "pay")
    graph.add_edge("pay", END)
    return graph


async def test_two_auditors_approve_and_nobody_else_does(backend: Backend, tmp_path: Path) -> None:
    logs = {name: await backend.open(signer=signer, verifier=REQUIRED) for name, signer in SIGNERS.items()}
    clients = {name: Client(logs[name], agent_id=name) for name in ("alice", "bob", "carol", "mallory")}
    agents = [agent_from_graph(paying())]
    async with Worker(logs["worker"], agents, home=tmp_path / "a", policy=POLICY):
        run = await clients["alice"].start("sample", {"amount": 7})
        await eventually(lambda: run.approvals())
        with pytest.raises(ApprovalError, match="alice asked for the run"):
            await run.approve()
        with suppress(ApprovalError):  # told at once if the owner was as quick
            await clients["mallory"].run_handle("sample", run.id).approve()
        await eventually(lambda: letters(logs["worker"]))
        (why,) = await letters(logs["worker"])
        assert "mallory is not among alice, role:auditor" in why
        bobs = clients["bob"].run_handle("sample", run.id)
        question = await bobs.approve()
        assert (question.status, question.approved_by) == ("open", ("bob",))
        with pytest.raises(ApprovalError, match="bob has approved the question"):
            await bobs.approve()

        async def is_counted() -> bool:
            return any(record.header(ALLOWED) for record in await journal(logs["worker"]))

        await eventually(is_counted)
    # The next owner goes on with what was approved, and asks no policy about it again.
    async with Worker(logs["worker"], agents, home=tmp_path / "b", policy=POLICY):
        await clients["carol"].run_handle("sample", run.id).approve()
        result = await run.result(timeout=PATIENCE_S)
        assert (result["approved"], result["by"]) == (True, ["bob", "carol"])
    said = [record.header(ALLOWED) for record in await journal(logs["worker"])]
    assert [json.loads(one) for one in said if one] == [
        {"approver": "role:auditor", "rule": "allow 2", "key": "bob"},
        {"approver": "role:auditor", "rule": "allow 2", "key": "carol"},
    ]
    [shown] = [line for line in draw(causal_tree(run.id, *await collect(run))) if "?" in line]
    assert (
        '? "Pay?"  approved by bob (role:auditor, rule allow 2, key bob), '
        "approved by carol (role:auditor, rule allow 2, key carol)  after " in shown
    )
    graph = paying().compile()
    verdict = await verify(run, ReplayTarget(graph, graph_ref(graph, "sample", "1.0.0")))
    assert verdict.is_same, verdict.difference
    for client in clients.values():
        await client.__aexit__(None, None, None)


async def journal(log: Any) -> list[Any]:
    """The records of the agent's journal."""
    return list(await stored(log, log.topology.journal("sample")))


async def test_one_rejection_is_enough_also_by_who_has_approved(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open()
    async with (
        Client(log, agent_id="bob") as bob,
        Worker(log, [agent_from_graph(paying())], home=tmp_path, policy=POLICY_OF_AUDITORS),
    ):
        run = await bob.start("sample", {})
        await eventually(lambda: run.approvals())
        await run.approve(by="carol")
        await run.reject(by="carol")
        result = await run.result(timeout=PATIENCE_S)
        assert (result["approved"], result["by"]) == (False, ["carol"])


POLICY_OF_AUDITORS = Policy.model_validate(
    {"roles": {"auditor": ["carol", "dan"]}, "allow": [{"who": ["*"], "may": ["start", "fork", "answer"]}]}
)


async def test_people_who_approve_different_things_have_not_approved_together(
    backend: Backend, tmp_path: Path
) -> None:
    log = await backend.open()
    async with (
        Client(log, agent_id="bob") as bob,
        Worker(log, [agent_from_graph(paying())], home=tmp_path, policy=POLICY_OF_AUDITORS),
    ):
        run = await bob.start("sample", {})
        await eventually(lambda: run.approvals())
        await run.approve(value=100, by="carol")
        with pytest.raises(ApprovalError, match="is not what carol has approved"):
            await run.approve(value=1_000, by="dan")

        async def refused() -> list[str]:
            return await letters(log)

        await eventually(refused)
        await run.approve(value=100, by="dan")
        assert (await run.result(timeout=PATIENCE_S))["by"] == ["carol", "dan"]


async def test_the_same_person_and_the_same_answer_count_once(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open()
    async with (
        Client(log, agent_id="bob") as bob,
        Worker(log, [agent_from_graph(paying())], home=tmp_path, policy=POLICY_OF_AUDITORS),
    ):
        run = await bob.start("sample", {})
        await eventually(lambda: run.approvals())
        (question,) = await run.approvals()
        for _ in range(3):  # past all checks of the client
            await send(log, question.answer(True, None, "carol"))
        await send(log, replace(question, requested_by=None).answer(True, None, "bob"))
        assert question.requested_by == "bob"

        async def refused() -> list[str]:
            return await letters(log)

        await eventually(refused)
        (why,) = await letters(log)
        assert "bob asked for the run, and somebody else has to answer" in why
        (question,) = await run.approvals()
        assert (question.status, question.approved_by) == ("open", ("carol",))
        assert question.needed.startswith("1 of 2 have approved (carol)")


async def send(log: Any, answer: ApprovalAnswered) -> None:
    """Append an answer as any program could."""
    event = root_event(
        answer,
        AgentRef("any", "client"),
        SystemClock(),
        partition_key=answer.run_id,
        metadata={"to": "sample"},
    )
    await log.append([event])


async def test_a_fork_does_not_inherit_what_people_have_approved(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open()
    agents = [agent_from_graph(spending())]
    async with (
        Client(log, agent_id="bob") as bob,
        Worker(log, agents, home=tmp_path, policy=POLICY_OF_AUDITORS),
    ):
        run = await bob.start("sample", {"amount": 1})
        await eventually(lambda: run.approvals())
        await run.approve(by="carol")
        await run.approve(by="dan")
        assert (await run.result(timeout=PATIENCE_S))["spent"] == 1
        with pytest.raises(ConfigError, match=r"asked for approval in step 2 \(pay\)"):
            await fork(bob, run, 2, {})
        # Past the check of the client: the owner refuses it, and the run ends.
        ref = ForkRef(run_id=run.id, step=2, values={"amount": 1_000_000})
        forked = await bob.start("sample", {"amount": 1}, fork=ref)
        with pytest.raises(RunFailedError, match="which a fork does not inherit"):
            await forked.result(timeout=PATIENCE_S)
        again = await fork(bob, run, 1, {})
        await eventually(lambda: again.approvals())
        assert [question.approved_by for question in await again.approvals()] == [()]
        await again.reject(by="dan")
        assert (await again.result(timeout=PATIENCE_S))["approved"] is False


def spending() -> StateGraph[Any, Any, Any, Any]:
    """Spends what was approved, in the step after the question."""
    graph = StateGraph(State)
    graph.add_node("before", lambda state: {"amount": state["amount"]})
    graph.add_node("pay", _pay)
    graph.add_node("spend", lambda state: {"spent": state["amount"] if state["approved"] else 0})
    graph.add_edge(START, "before")
    graph.add_edge("before", "pay")
    graph.add_edge("pay", "spend")
    graph.add_edge("spend", END)
    return graph
