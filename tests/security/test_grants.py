"""Roles and scopes travel with calls and only narrow; who forges them reaches nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noesium_stream import BaseGraphicAgent, capability, current_step
from noesium_stream.client import Client
from noesium_stream.client.proof.checks import verify_file
from noesium_stream.client.proof.export import export_run
from noesium_stream.client.proof.grant_chain import broken_links
from noesium_stream.clock import SystemClock
from noesium_stream.errors import PermissionDeniedError, RunFailedError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.signing import Verifier
from noesium_stream.event.standard import CapabilityInvoked, Grant, ReplyTo
from noesium_stream.event.trust.grants import grant_hash, grant_in, grant_of
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.backends import Backend
from tests.support.reading import PATIENCE_S, eventually, stored

POLICY = Policy.model_validate(
    {
        "roles": {"auditor": ["alice"]},
        "scopes": {"ledger:read": ["role:auditor"]},
        "allow": [{"who": ["*"], "may": ["*"]}],
    }
)


class Ledger(BaseGraphicAgent):
    """Reads a book, for auditors."""

    agent_type = "ledger"

    @capability("ledger.read", required_roles=["auditor"], required_scopes=["ledger:read"])
    async def read(self, page: int) -> str:
        return f"page {page}"


class Front(BaseGraphicAgent):
    """Asks the ledger, with as much as it is told."""

    agent_type = "front"

    @capability("front.ask")
    async def ask(self, page: int, roles: list[str] | None = None) -> str:
        found = await current_step().invoke("ledger.read", {"page": page}, roles=roles)
        return str(found)


async def test_a_call_reaches_what_its_person_may_reach(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open()
    async with (
        Client(log, agent_id="alice") as alice,
        Client(log, agent_id="bob") as bob,
        Worker(log, [Front, Ledger], home=tmp_path, policy=POLICY),
    ):
        run = await alice.start("front", {"page": 7})
        assert await run.result(timeout=PATIENCE_S) == "page 7"
        refused = await bob.start("front", {"page": 7})
        with pytest.raises(RunFailedError, match="requires the role auditor, which the caller does not have"):
            await refused.result(timeout=PATIENCE_S)
        fewer = await alice.start("front", {"page": 7, "roles": []})
        with pytest.raises(RunFailedError, match="requires the role auditor, which the caller does not have"):
            await fewer.result(timeout=PATIENCE_S)
        more = await alice.start("front", {"page": 7, "roles": ["auditor", "admin"]})
        with pytest.raises(RunFailedError, match="cannot hand on the role 'admin'"):
            await more.result(timeout=PATIENCE_S)
        direct = await bob.start("ledger", {"page": 7})
        with pytest.raises(PermissionDeniedError, match="'bob' acts without the role 'auditor'"):
            await direct.result(timeout=PATIENCE_S)


async def test_a_forged_grant_is_refused_by_the_provider(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open()
    clock = SystemClock()
    mallory = AgentRef("front", "front")

    async def call(capability_id: str, grant: Grant | None) -> str:
        run_id = clock.uuid7()
        event = CapabilityInvoked(
            run_id=run_id,
            capability_id=capability_id,
            version="1.0.0",
            caller_agent_id="front",
            caller_run_id="r",
            target_agent_id="ledger",
            target_agent_type="ledger",
            registry_offset=0,
            input={"page": 1},
            reply_to=ReplyTo(agent_type="front", run_id="r", call_id=run_id),
            grant=grant,
        )
        await log.append([root_event(event, mallory, clock, partition_key=run_id, metadata={"to": "ledger"})])
        ended: list[str] = []

        async def has_ended() -> bool:
            ended[:] = [
                str(one.payload.get("message", "done"))
                for one in await events(log, "ledger")
                if one.partition_key == run_id and one.event_type in ("command.refused", "run.completed")
            ]
            return bool(ended)

        await eventually(has_ended)
        return ended[0]

    everything = {"roles": ["auditor"], "scopes": ["ledger:read"]}
    async with Worker(log, [Ledger], home=tmp_path, policy=POLICY):
        assert "does not give to 'bob'" in await call("ledger.read", Grant(principal="bob", **everything))
        assert "acts without the role" in await call("ledger.read", None)
        assert "acts without the role" in await call("no.such", Grant(principal="bob"))
        assert await call("ledger.read", grant_of(POLICY, "alice")) == "done"


async def test_the_grants_of_a_tree_are_a_chain_that_exports_prove(tmp_path: Path) -> None:
    files, runs = await _exported(tmp_path)
    verdicts = [verify_file(path, Verifier()) for path in files]
    root, child = (verdict.grants for verdict in verdicts)
    assert root.own is not None
    assert child.own is not None
    assert (root.own.principal, root.own.roles, root.own.parent) == ("alice", ["auditor"], None)
    assert (child.own.roles, child.own.parent) == (["auditor"], grant_hash(root.own))
    assert root.handed == {runs[1]: child.own}
    assert list(broken_links(zip(runs, (root, child), strict=True))) == []
    other = child.own.model_copy(update={"parent": "0" * 64})
    child.asked = other
    assert list(broken_links(zip(runs, (root, child), strict=True))) == [
        (runs[1], f"the run '{runs[0]}', which called it, has handed on another grant")
    ]


async def _exported(folder: Path) -> tuple[list[Path], list[str]]:
    """The files of a run and of the run that it has called, with their ids."""
    log = await open_log("memory://grants")
    try:
        async with (
            Client(log, agent_id="alice") as alice,
            Worker(log, [Front, Ledger], home=folder, policy=POLICY),
        ):
            run = await alice.start("front", {"page": 7})
            await run.result(timeout=PATIENCE_S)
            child = next(iter(await _called(log, run.id)))
            files = []
            for number, one in enumerate((run, alice.run_handle("ledger", child))):
                files.append(folder / f"{number}.jsonl")
                await export_run(one, files[-1], SystemClock(), None)
            return files, [run.id, child]
    finally:
        await log.close()


async def events(log: EventLog, agent_type: str) -> list[EventEnvelope]:
    """The journal of an agent."""
    return [record.envelope for record in await stored(log, log.topology.journal(agent_type))]


async def _called(log: EventLog, run_id: str) -> dict[str, Any]:
    journal = await events(log, "front")
    return {
        one.payload["run_id"]: grant_in(one.payload)
        for one in journal
        if one.event_type == "capability.invoked" and one.payload["caller_run_id"] == run_id
    }
