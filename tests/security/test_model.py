"""A model that was talked into things: what code that it steers can say by its own worker's key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import ApprovalAnswered
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.security.test_policy import POLICY, REQUIRED, SIGNERS
from tests.security.test_signatures import letters
from tests.support.backends import Backend
from tests.support.reading import PATIENCE_S, eventually


class State(TypedDict, total=False):
    said: Any


async def ask(state: State) -> State:
    """A node that needs a person."""
    return {"said": interrupt("may I pay?")}


async def test_an_agent_does_not_answer_its_own_question(backend: Backend, tmp_path: Path) -> None:
    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    worker = await backend.open(signer=SIGNERS["worker"], verifier=REQUIRED)
    steered = await backend.open(signer=SIGNERS["worker"])
    alices = await backend.open(signer=SIGNERS["alice"], verifier=REQUIRED)
    bobs = await backend.open(signer=SIGNERS["bob"], verifier=REQUIRED)
    async with (
        Client(alices, agent_id="alice") as alice,
        Client(bobs, agent_id="bob") as bob,
        Worker(worker, [agent_from_graph(graph)], home=tmp_path, policy=POLICY),
    ):
        run = await alice.start("sample", {})
        await eventually(lambda: run.approvals())
        [question] = await run.approvals()
        for name in ("agent:sample", "sample", "bob"):
            await _answer(steered, run.id, question.approval_id, question.fingerprint, name)
        await eventually(lambda: _count(worker, 3))
        own, unknown, bobs_name = await letters(worker)
        assert "'agent:sample' may not answer questions of sample" in own
        assert "the key 'worker' may not speak for 'sample'" in unknown
        assert "the key 'worker' may not speak for 'bob'" in bobs_name
        await bob.run_handle("sample", run.id).approve(value="yes, says bob")
        assert (await run.result(timeout=PATIENCE_S))["said"] == "yes, says bob"


async def _count(log: EventLog, count: int) -> bool:
    return len(await letters(log)) == count


async def _answer(log: EventLog, run_id: str, approval_id: str, fingerprint: str, name: str) -> None:
    answer = ApprovalAnswered(
        run_id=run_id, approval_id=approval_id, fingerprint=fingerprint, approved=True, answered_by=name
    )
    producer = AgentRef("sample", "sample")
    event = answer.to_envelope(producer, None, None, partition_key=run_id)
    await log.append([event.replace(metadata={"to": "sample"})])
