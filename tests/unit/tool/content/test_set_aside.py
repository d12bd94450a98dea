"""Large results are set aside, and read again by their hash."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode, tool
from noesium_stream.tool.content.set_aside import LIMIT_BYTES, set_aside
from noesium_stream.tool.content.store import ContentStore
from noesium_stream.tool.content.toolkit import ContentToolkit

LONG = "naïve € " * 10_000


async def test_a_short_value_stays(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "contents")
    assert await set_aside({"a": 1}, store) == {"a": 1}
    assert await set_aside("x" * (LIMIT_BYTES - 2), store) == "x" * (LIMIT_BYTES - 2)
    assert not (tmp_path / "contents").exists()


async def test_a_long_text_is_stored_as_text(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    stands = await set_aside(LONG, store)
    assert stands["$content"]["media_type"] == "text/plain"
    assert stands["head"] == LONG[:2_000]
    assert store.get(stands["$content"]["hash"]).decode() == LONG
    assert len(json.dumps(stands)) < LIMIT_BYTES


async def test_a_long_value_is_stored_as_json_whatever_its_order(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    one = await set_aside({"b": LONG, "a": 1.5}, store)
    assert one == await set_aside({"a": 1.5, "b": LONG}, store)
    assert json.loads(store.get(one["$content"]["hash"])) == {"a": 1.5, "b": LONG}


@pytest.mark.parametrize("text", [LONG, "\x01" * 50_000, "\U0001f375" * 50_000])
async def test_the_whole_is_read_in_parts_that_are_not_set_aside_themselves(
    tmp_path: Path, text: str
) -> None:
    store = ContentStore(tmp_path)
    digest = (await set_aside(text, store))["$content"]["hash"]
    [reader] = ContentToolkit(store).tools()
    parts, offset = [], 0
    while offset is not None:
        part = await reader.execute({"hash": digest, "offset": offset}, None)  # type: ignore[arg-type]
        assert await set_aside(part, store) is part
        parts.append(part["text"])
        offset = part["next_offset"]
    assert "".join(parts) == text


class State(TypedDict, total=False):
    shown: Any
    whole: str


@tool(side_effects=SideEffectClass.EXTERNAL)
def report() -> str:
    """Write a long report."""
    return LONG


async def ask(state: State) -> dict[str, Any]:
    step = current_step()
    shown = await step.tool("report")
    part = await step.tool("read_content", hash=shown["$content"]["hash"], length=7)
    return {"shown": shown, "whole": part["text"]}


def agent(where: str | None = None) -> Any:
    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    kind = agent_from_graph(graph, "reporter")
    kind.tools, kind.mode, kind.contents = (report,), Mode.AUTO, where
    return kind


async def test_an_agent_reads_what_its_tool_has_returned() -> None:
    async with Rehearsal(agent()) as rehearsal:
        run = await rehearsal.start({})
        result = await run.result()
        events = await run.history()
    assert result["whole"] == LONG[:7]
    completed = [event.payload for event in events if event.event_type == "tool.completed"]
    assert completed[0]["output"] == result["shown"]


async def test_a_call_that_was_made_and_cannot_be_stored_waits_for_a_person(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with Rehearsal(agent(str(tmp_path / "file" / "contents"))) as rehearsal:
        run = await rehearsal.start({})
        while not (waiting := await rehearsal.client.unresolved_effects()):
            await asyncio.sleep(0.01)
        (effect,) = waiting
        events = await run.history()
    failed = [event.payload for event in events if event.event_type == "effect.failed"]
    assert effect.effect_id
    assert all("its result is lost" in str(payload) for payload in failed)
