"""Where signatures are required: who has no key, and who repeats what was signed elsewhere, is not heard."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.errors import ApprovalError
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.standard import EventValidationFailed
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.backends import Backend
from tests.support.reading import PATIENCE_S, eventually, stored

OURS = Signer(Ed25519PrivateKey.generate(), "ours")
REQUIRED = Verifier({"ours": OURS.public_key}, required=True)


class State(TypedDict, total=False):
    n: int
    said: Any


def asking() -> Any:
    """An agent that waits for a person."""
    graph = StateGraph(State)
    graph.add_node("ask", _ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return agent_from_graph(graph)


async def _ask(state: State) -> State:
    return {"said": interrupt("may I?")}


async def letters(log: EventLog) -> list[str]:
    """Why records of the inbox are dead letters."""
    events = [record.envelope for record in await stored(log, log.topology.dlq)]
    return [
        event.payload["failure_reason"] for event in events if event.event_type == EventValidationFailed.TYPE
    ]


async def test_who_has_no_key_starts_answers_and_cancels_nothing(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open(signer=OURS, verifier=REQUIRED)
    stranger = await backend.open()
    async with Client(log) as client, Client(stranger) as other, Worker(log, [asking()], home=tmp_path):
        run = await client.start("sample", {"n": 1})
        await eventually(lambda: run.approvals())
        theirs = other.run_handle("sample", run.id)
        await theirs.cancel("because I say so")
        with suppress(ApprovalError):  # told at once if the owner was as quick
            await theirs.approve(value="yes, says the stranger")
        started = await other.start("sample", {"n": 2})
        await eventually(lambda: _count(log, 3))
        assert all("only signed records are accepted" in reason for reason in await letters(log))
        journal = await stored(log, log.topology.journal("sample"))
        assert started.id not in {record.key for record in journal}
        await run.approve(value="yes")
        assert (await run.result(timeout=PATIENCE_S))["said"] == "yes"


async def _count(log: EventLog, count: int) -> bool:
    return len(await letters(log)) == count


async def test_a_signed_command_counts_in_its_own_place_once(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open(signer=OURS, verifier=REQUIRED)
    async with Client(log) as client, Worker(log, [asking()], home=tmp_path):
        run = await client.start("sample", {"n": 1})
        await eventually(lambda: run.approvals())
        inbox = log.topology.inbox("sample")
        [command] = await stored(log, inbox)
        elsewhere = (command.partition + 1) % 4
        headers = [(name, value) for name, value in command.headers if name != "noesium_commit"]
        await backend.inject(inbox, command.partition, command.key, headers, command.value)
        await backend.inject(inbox, elsewhere, command.key, headers, command.value)
        await eventually(lambda: _count(log, 1))
        assert "not of this record in this place" in (await letters(log))[0]
        await run.approve(value="yes")
        await run.result(timeout=PATIENCE_S)
        types = [event.event_type async for event in run.events(follow=False)]
        assert types.count("run.started") == 1
