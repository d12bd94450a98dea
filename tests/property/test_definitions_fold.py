"""The registered tools are a pure fold; nobody but a person puts a foreign change into use."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import EventValidationError
from noesium_stream.event import AgentRef, EventEnvelope
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.standard import ToolAccepted
from noesium_stream.tool import AtomicTool, ToolSource
from noesium_stream.tool.definitions.fold import DefinitionsProjection
from noesium_stream.tool.definitions.registration import unregistered
from noesium_stream.tool.definitions.state import FOREIGN_TAG, DefinitionsState, is_foreign

CLOCK = VirtualClock()
AGENTS = ("a", "b")
TOOLS = [
    AtomicTool("find", text, {"type": "object"}, source=source, tags=tags)
    for text in ("one", "two", "three")
    for source, tags in ((ToolSource.MCP, ()), (ToolSource.USER, ()), (ToolSource.USER, (FOREIGN_TAG,)))
]
IDS = sorted({tool.tool_id for tool in TOOLS})
HASHES = {tool.definition_hash: tool for tool in TOOLS}


@st.composite
def events(draw: st.DrawFn) -> EventEnvelope:
    """A registration or an acceptance; now and then by somebody who has no say in it."""
    owner, tool = draw(st.sampled_from(AGENTS)), draw(st.sampled_from(TOOLS))
    if draw(st.booleans()):
        [event] = unregistered(DefinitionsState(), AgentRef(owner, owner), [tool])
        writer = owner if draw(st.integers(0, 4)) else "client"
        return root_event(event, AgentRef(writer, writer), CLOCK)
    said: DomainEvent = ToolAccepted(
        tool_id=tool.tool_id, agent_type=owner, definition_hash=tool.definition_hash, accepted_by="alice"
    )
    writer = "client" if draw(st.integers(0, 4)) else owner
    return root_event(said, AgentRef(writer, writer), CLOCK)


logs = st.lists(events(), max_size=30)


def folded(log: Sequence[EventEnvelope], state: DefinitionsState | None = None) -> DefinitionsState:
    projection = DefinitionsProjection()
    state = projection.initial_state() if state is None else state
    for event in log:
        state = projection.apply(state, event)
    return state


@given(logs, st.integers(0, 30))
def test_a_prefix_and_the_rest_give_the_same_as_the_whole(log: list[EventEnvelope], cut: int) -> None:
    assert folded(log[cut:], folded(log[:cut])) == folded(log)


@given(logs, st.data())
def test_an_event_that_comes_again_changes_nothing(log: list[EventEnvelope], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(log), max_size=9)) if log else []
    assert folded(again, folded(log)) == folded(log)


@given(logs)
def test_strangers_change_nothing(log: list[EventEnvelope]) -> None:
    own = [
        event
        for event in log
        if (event.producer.agent_type == event.payload["agent_type"])
        == (event.event_type == "tool.registered")
    ]
    assert folded(own) == folded(log)


@given(logs)
def test_a_foreign_change_is_in_use_only_after_a_person_has_accepted_its_hash(
    log: list[EventEnvelope],
) -> None:
    state, accepted = DefinitionsState(), set()
    for event in log:
        before = {(one.agent_type, one.tool_id): one for one in state.tools()}
        state = folded([event], state)
        if event.event_type == "tool.accepted" and event.producer.agent_type == "client":
            accepted.add((event.payload["agent_type"], event.payload["definition_hash"]))
        for one in state.tools():
            old = before.get((one.agent_type, one.tool_id))
            if old is None or one.current.hash == old.current.hash:
                continue
            if is_foreign(old.current.value) or is_foreign(one.current.value):
                assert (one.agent_type, one.current.hash) in accepted or one.current.hash in old.former
            assert old.current.hash in one.former
    for agent in AGENTS:
        for id in IDS:
            one = state.get(agent, id)
            for hash in HASHES:
                known = one is not None and hash in {one.current.hash, *one.former}
                assert state.is_accepted(agent, id, hash) == known


@given(st.sampled_from(TOOLS), st.sampled_from(TOOLS), st.data())
def test_a_definition_that_is_not_what_the_event_says_is_refused(
    tool: AtomicTool, other: AtomicTool, data: st.DataObject
) -> None:
    [said] = unregistered(DefinitionsState(), AgentRef("a", "a"), [tool])
    event = root_event(said, AgentRef("a", "a"), CLOCK)
    wrong = data.draw(
        st.sampled_from(
            [
                {"tool_id": "user:other"},
                {"definition_hash": "0" * 64},
                {"definition_hash": None},
                {"definition": {**tool.definition, "name": "a b"}},
                {"definition": {**tool.definition, "more": 1}},
                {"definition": {**tool.definition, "timeout_ms": 0}},
                {"definition": {**tool.definition, "tags": ["z", "a"]}},
                {"definition": {**tool.definition, "input_schema": {"type": "nothing"}}},
                {"definition": {}},
                {"definition": {**other.definition, "version": "2.0.0"}},
            ]
        )
    )
    state = DefinitionsState()
    try:
        DefinitionsProjection().apply(state, event.replace(payload={**event.payload, **wrong}))
    except EventValidationError:
        assert state == DefinitionsState()
    else:
        raise AssertionError(wrong)
