"""What exported runs say about grants: a link that does not hold is named."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.client.proof.grant_chain import GrantChain, broken_links
from noesium_stream.clock import SystemClock
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.standard import (
    CapabilityInvoked,
    Grant,
    GraphRef,
    ReplyTo,
    RunRequested,
    RunStarted,
)
from noesium_stream.event.trust.grants import narrowed

ALICE = Grant(principal="alice", roles=["auditor", "clerk"])
ME = AgentRef("front", "front")
CLOCK = SystemClock()


def called(run_id: str, grant: Grant | None) -> EventEnvelope:
    """A call; its run is `run_id`."""
    call = CapabilityInvoked(
        run_id=run_id,
        capability_id="c",
        version="1.0.0",
        caller_agent_id="front",
        caller_run_id="caller",
        target_agent_id="ledger",
        target_agent_type="ledger",
        registry_offset=0,
        input={},
        reply_to=ReplyTo(agent_type="front", run_id="caller", call_id=run_id),
        grant=grant,
    )
    return root_event(call, ME, CLOCK, partition_key=run_id)


def started(grant: Grant | None) -> EventEnvelope:
    """A run's beginning."""
    graph = GraphRef(graph_id="g", version="1.0.0", fingerprint="f")
    event = RunStarted(run_id="r", agent_type="front", agent_version="1.0.0", graph=graph, grant=grant)
    return root_event(event, ME, CLOCK, partition_key="r")


def asked() -> EventEnvelope:
    """A person's command."""
    return root_event(RunRequested(run_id="r", agent_type="front", input={}), ME, CLOCK, partition_key="r")


def folded(*events: tuple[EventEnvelope, bool]) -> tuple[GrantChain, list[str | None]]:
    """The chain of these events and what was said of each; True: it was received."""
    chain = GrantChain()
    return chain, [chain.take(event, received=received) for event, received in events]


def test_honest_links_hold() -> None:
    child = narrowed(ALICE, roles=["clerk"])
    root, problems = folded((asked(), True), (started(ALICE), False), (called("c1", child), False))
    assert problems == [None, None, None]
    below, problems = folded((called("c1", child), True), (started(child), False))
    assert problems == [None, None]
    assert list(broken_links([("r", root), ("c1", below)])) == []


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([(called("c", narrowed(ALICE)), True), (started(ALICE), False)], "another grant than it was given"),
        ([(asked(), True), (started(narrowed(ALICE)), False)], "nobody has given it one"),
        ([(started(ALICE), False), (called("c", ALICE), False)], "not made from that of the run"),
        ([(started(ALICE), False), (called("c", None), False)], "handed on no grant"),
    ],
)
def test_a_link_that_does_not_hold_is_named(events: list[Any], problem: str) -> None:
    assert problem in str(folded(*events)[1][-1])


def test_a_child_with_a_grant_that_its_caller_has_not_given_is_named() -> None:
    root, _ = folded((started(ALICE), False), (called("c1", narrowed(ALICE, roles=[])), False))
    below, _ = folded((called("c1", narrowed(ALICE)), True))
    [(run, problem)] = broken_links([("r", root), ("c1", below)])
    assert (run, problem) == ("c1", "the run 'r', which called it, has handed on another grant")
