"""An exported run with a command, an approval and an effect, each signed by its own key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypedDict

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.proof.export import export_run
from noesium_stream.clock import SystemClock
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.trust.policy import Policy
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.kernel import current_step
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually

NAMES = {"alice-1": ["alice"], "bob-1": ["bob"], "clerk-1": ["agent:clerk"], "ops-1": ["*"]}
SIGNERS = {name: Signer(Ed25519PrivateKey.generate(), name) for name in [*NAMES, "mallory-1"]}
KEYS = {name: TrustedKey(name, SIGNERS[name].public_key, frozenset(names)) for name, names in NAMES.items()}
REQUIRED = Verifier(KEYS, required=True)
ANYTHING = Policy.model_validate({"allow": [{"who": ["*"], "may": ["*"]}]})

Open = Callable[..., Any]


class State(TypedDict, total=False):
    order: int
    paid: str


async def _refund(state: State) -> State:
    step = current_step()
    verdict = await step.interrupt(f"Refund order {state['order']}?")
    assert verdict.approved
    return {"paid": await step.effect("pay", str, state["order"])}


def clerk() -> Any:
    """An agent that asks before it pays."""
    graph = StateGraph(State)
    graph.add_node("refund", _refund)
    graph.add_edge(START, "refund")
    graph.add_edge("refund", END)
    return agent_from_graph(graph, "clerk")


async def exported(
    logs: Mapping[str, EventLog], home: Path, names: Sequence[str] = ("run",), *, signed: bool = True
) -> list[Path]:
    """Let alice ask for refunds and bob approve them; return the files of the exported runs.

    `logs` has one with each one's key.
    """
    files = []
    async with (
        Client(logs["alice-1"], agent_id="alice") as alice,
        Client(logs["bob-1"], agent_id="bob") as bob,
        Client(logs["ops-1"]) as ops,
        Worker(logs["clerk-1"], [clerk()], home=home, policy=ANYTHING),
    ):
        for name in names:
            run = await alice.start("clerk", {"order": 7})
            await eventually(lambda run=run: run.approvals())
            await bob.run_handle("clerk", run.id).approve()
            await run.result(timeout=PATIENCE_S)
            files.append(home / f"{name}.jsonl")
            signer = SIGNERS["ops-1"] if signed else None
            await export_run(await ops.get_run(run.id), files[-1], SystemClock(), signer)
    return files


def rechained(lines: Sequence[bytes], exporter: str | None = None) -> list[bytes]:
    """Lines with the hashes that an exporter gives them, and his signature, if he has a key."""
    before, made = b"", []
    for number, line in enumerate(lines):
        found = json.loads(line)
        if "signature" in found:
            continue
        found.pop("sha256")
        if number == 0:
            found["exporter"] = exporter
        body = json.dumps(found, separators=(",", ":")).encode()[:-1]
        before = sha256(before + body).hexdigest().encode()
        made.append(b'%b,"sha256":"%b"}\n' % (body, before))
    if exporter is not None:
        signature = SIGNERS[exporter].sign_bytes(b"noesium proof file 1\n" + before)
        made.append(json.dumps({"key": exporter, "signature": signature}).encode() + b"\n")
    return made
