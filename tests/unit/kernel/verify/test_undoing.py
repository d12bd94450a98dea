"""A run that graphs have undone can be verified, also in how it was undone, and forked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.agent import AgentContext, agent_from_graph
from noesium_stream.agent.base import NoOptions
from noesium_stream.capabilities.version import in_range
from noesium_stream.client import Run
from noesium_stream.client.operate.fork import fork
from noesium_stream.clock import SystemClock
from noesium_stream.errors import RunFailedError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.kernel import current_step, kernel_compensation
from noesium_stream.kernel.recording.fork import shared_history
from noesium_stream.kernel.recording.recorded_run import RecordedRun, recorded_run
from noesium_stream.kernel.verify.verifier import ReplayTarget, Verdict, verify_run
from noesium_stream.testing import Rehearsal
from tests.support import unbooking
from tests.support.effects import reached
from tests.support.reading import PATIENCE_S
from tests.support.replays import REF
from tests.support.unbooking import Holidays, Unbook, act, apologise, chain, close, new_world, refund


@pytest.fixture(autouse=True)
def world() -> None:
    new_world()


async def recording(run: Run) -> RecordedRun:
    return recorded_run([record async for record in run.records(follow=False)])


async def verified(run: RecordedRun, rehearsal: Rehearsal) -> Verdict:
    context = AgentContext(Path(), rehearsal.log, SystemClock(), AgentRef("x", "holidays"), print)
    agent = Holidays(NoOptions(), context)
    before = unbooking.WORLD.calls.copy()
    verdict = await verify_run(
        ReplayTarget(agent.graph, REF, agent=agent, versions=agent.versions), run, in_range
    )
    assert unbooking.WORLD.calls == before, "nothing is called"
    return verdict


async def failed(rehearsal: Rehearsal, decision: Any = None) -> RecordedRun:
    """A run that was undone; `decision`: of a person about what fails of that."""
    run = await rehearsal.start({"place": "Rome"})
    if decision is not None:
        waiting = await reached(run, "effect.failed", awaits_decision=True)
        await run.resolve_effect(waiting.payload["effect_id"], decision)
    with pytest.raises(RunFailedError):
        await run.result()
    return await recording(run)


@pytest.mark.parametrize("decision", [None, "retry", "fail", "result"])
async def test_a_run_that_graphs_have_undone_verifies_itself(decision: Any) -> None:
    new_world(fails={"letter": 1} if decision else {})
    async with Rehearsal(Holidays) as rehearsal:
        run = await failed(rehearsal, decision)
        verdict = await verified(run, rehearsal)
    assert verdict.difference is None, str(verdict.difference)
    # Three steps of its own; erase, refund, apologise, polite, close, report.
    assert verdict.steps == (9 if decision in (None, "retry") else 8)


async def test_a_run_that_is_being_undone_verifies_itself_as_far_as_it_goes() -> None:
    new_world(hangs={"letter": 1})
    async with Rehearsal(Holidays) as rehearsal:
        run = await rehearsal.start({})
        while not unbooking.WORLD.calls["letter"]:
            await asyncio.sleep(0)
        verdict = await verified(await recording(run), rehearsal)
    assert verdict.difference is None, str(verdict.difference)
    assert verdict.status == "open"
    assert verdict.steps == 5


async def test_a_run_that_waits_within_a_subgraph_verifies_itself() -> None:
    new_world(hangs={"letter": 1})
    graph = unbooking.unbook()
    async with Rehearsal(agent_from_graph(graph, "unbooker")) as rehearsal:
        run = await rehearsal.start({"name": "Rome"})
        while not unbooking.WORLD.calls["letter"]:
            await asyncio.sleep(0)
        verdict = await verify_run(ReplayTarget(graph.compile(), REF), await recording(run), in_range)
    assert verdict.difference is None, str(verdict.difference)
    assert verdict.status == "open"


async def refund_twice(state: Unbook) -> dict[str, Any]:
    await current_step().effect("refund", act, "refund")
    return {"refunded": await current_step().effect("refund", act, "refund")}


async def refund_other(state: Unbook) -> dict[str, Any]:
    return {"refunded": await current_step().effect("refund", act, "something else")}


async def refund_silently(state: Unbook) -> dict[str, Any]:
    return {"refunded": "refund 1"}


async def refund_less(state: Unbook) -> dict[str, Any]:
    await refund(state)
    return {"refunded": "refund 0"}


async def refuse(state: Unbook) -> dict[str, Any]:
    raise LookupError("no refund")


MUTATIONS = {
    "another call more": (chain(refund=refund_twice, polite=apologise, close=close), "refund"),
    "another argument": (chain(refund=refund_other, polite=apologise, close=close), "refund"),
    "a call less": (chain(refund=refund_silently, polite=apologise, close=close), "refund"),
    "another delta": (chain(refund=refund_less, polite=apologise, close=close), "refund"),
    "a failure": (chain(refund=refuse, polite=apologise, close=close), "refund"),
    "another order": (chain(close=close, refund=refund), "refund"),
    "a node less": (chain(refund=refund), "polite"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
async def test_a_graph_that_would_undo_otherwise_now_is_told(
    mutation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, node = MUTATIONS[mutation]
    async with Rehearsal(Holidays) as rehearsal:
        run = await failed(rehearsal)
        monkeypatch.setattr(unbooking, "UNBOOK", kernel_compensation()(graph.compile()))
        verdict = await verified(run, rehearsal)
    assert verdict.difference is not None
    assert verdict.difference.node == node
    assert verdict.difference.what.endswith(", undoing booking")


async def test_a_fork_of_a_run_that_was_undone_shares_nothing_of_that_and_is_undone_by_itself() -> None:
    async with Rehearsal(Holidays) as rehearsal:
        parent = await rehearsal.start({"place": "Rome"})
        with pytest.raises(RunFailedError):
            await parent.result()
        shared = shared_history(await recording(parent), 2, {})
        world = new_world()
        run = await fork(rehearsal.client, parent, 2, {})
        with pytest.raises(RunFailedError, match="no trains today"):
            await run.result(timeout=PATIENCE_S)
        events = [event async for event in run.events(follow=False)]
    assert world.log == ["report"], "what the parent did is the parent's to undo"
    assert [one["name"] for one in events[-1].payload["compensated"]] == ["the run"]
    nodes = [e.payload["node"] for e in events if e.event_type == "kernel.node.entered"]
    assert nodes == ["leave", "report"]
    assert [e.payload["node"] for e in shared if e.event_type == "kernel.node.completed"] == ["book", "note"]
