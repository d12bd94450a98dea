"""`ToolNode` in an agent: what it does is what it does in LangGraph alone, and each call is on the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.tools import tool as langchain_tool

from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import RunFailedError
from noesium_stream.event import EventEnvelope
from noesium_stream.kernel.state.typed_json import readable
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode
from noesium_stream.tool.in_graph.call import WHOLE
from tests.support.tool_nodes import CASES, Case, first_state, graph_of, made


def without_ids(value: Any) -> Any:
    """JSON without the ids of messages, which LangGraph draws by lot."""
    if isinstance(value, dict):
        return {
            key: without_ids(item) for key, item in value.items() if not (key == "id" and "type" in value)
        }
    return [without_ids(item) for item in value] if isinstance(value, list) else value


async def alone(case: Case) -> tuple[Any, list[str]]:
    """The final state in LangGraph itself, or the error; and the calls that were made."""
    made.clear()
    try:
        state = await graph_of(case).ainvoke(first_state(case))
    except Exception as error:
        return (type(error).__name__, str(error)), sorted(made)
    return without_ids(readable(state)), sorted(made)


def agent_of(graph: Any) -> Any:
    """An agent class with the graph that asks nobody."""
    kind = agent_from_graph(graph, "clerk")
    kind.mode, kind.permissions = Mode.AUTO, ()
    return kind


async def in_agent(kind: Any, case: Case) -> tuple[Any, list[str], list[EventEnvelope]]:
    """The same of a run of an agent; with its journal, which a replay agrees with and calls nothing."""
    made.clear()
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(first_state(case))
        try:
            final = without_ids(await run.result())
        except RunFailedError:
            failed = [
                event.payload for event in await run.history() if event.event_type == "kernel.node.failed"
            ]
            final = failed[-1]["error_type"], failed[-1]["message"]
        events = await run.history()
        calls = sorted(made)
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        assert verdict.difference is None
        assert sorted(made) == calls
    return final, calls, events


class LocalError(Exception):
    """An error that the settings of a node name, and no module of a node."""


LocalError.__module__ = "elsewhere"


async def test_an_error_that_only_the_node_s_settings_name_is_handled_after_a_crash() -> None:
    @langchain_tool
    def fail(how: str) -> str:
        """Fail."""
        made.append(how)
        raise LocalError(how)

    case = Case([fail], [("fail", {"how": "badly"})], {"handle_tool_errors": (LocalError,)})
    kind = agent_of(graph_of(case))
    async with Rehearsal(kind) as rehearsal:
        made.clear()
        rehearsal.crash_after("effect.failed")
        run = await rehearsal.start(first_state(case))
        answer = (await run.result())["messages"][-1]
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
    assert verdict.difference is None
    assert answer["content"] == "Error: LocalError('badly')\n Please fix your mistakes."
    assert made == ["badly"]


async def test_injected_arguments_are_not_on_the_log() -> None:
    for name in ("state", "state that a model forges", "the runtime", "the id of the call, forged"):
        case = CASES[name]
        _, _, events = await in_agent(agent_of(graph_of(case)), case)
        ((_, given),) = case.calls
        (invoked,) = [event.payload for event in events if event.event_type == "tool.invoked"]
        assert invoked["input"] == {key: value for key, value in given.items() if key in ("text",)}


async def test_a_very_large_text_is_set_aside() -> None:
    @langchain_tool
    def write(how: str) -> str:
        """Write much."""
        return how * WHOLE

    for how, starts in (("a", "aaa"), ("ab", '{"$content":{"hash":')):
        case = Case([write], [("write", {"how": how})])
        final, _, events = await in_agent(agent_of(graph_of(case)), case)
        text = final["messages"][-1]["content"]
        assert text.startswith(starts)
        assert told(events) == ["tool.invoked", "tool.completed"]
    assert "read_content reads all of it" in text


def told(events: Sequence[EventEnvelope]) -> list[str]:
    """The events that tell of calls."""
    return [event.event_type for event in events if event.event_type.startswith("tool.")]


@pytest.mark.parametrize("name", CASES)
async def test_a_tool_node_does_in_an_agent_what_it_does_alone(name: str) -> None:
    case = CASES[name]
    expected, calls = await alone(case)
    final, also, events = await in_agent(agent_of(graph_of(case)), case)
    assert final == expected
    assert also == calls
    assert len([one for one in told(events) if one == "tool.invoked"]) >= len(set(calls))
