"""A LangGraph graph as durable runs from one program."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from noesium_stream import KernelExecutor
from noesium_stream.errors import RunNotFoundError, RunTimeoutError

bodies: list[str] = []


class State(TypedDict, total=False):
    text: str
    verdict: str


def draft(state: State) -> dict[str, Any]:
    bodies.append("draft")
    return {"text": state["text"].upper()}


def ask(state: State) -> dict[str, Any]:
    return {"verdict": interrupt(f"Send {state['text']}?")}


def graph() -> Any:
    builder = StateGraph(State)
    builder.add_node(draft)
    builder.add_node(ask)
    builder.add_edge(START, "draft")
    builder.add_edge("draft", "ask")
    return builder.compile()


async def test_a_run_that_waits_is_answered_and_resumed_by_another_executor(tmp_path: Path) -> None:
    bodies.clear()
    url = f"sqlite:///{tmp_path}/log.db"
    async with KernelExecutor(graph(), url, "letters", home=tmp_path) as first:
        run = await first.start({"text": "hello"}, idempotency_key="mail-1")
        async for event in run.events():
            if event.event_type == "approval.requested":
                break
        with pytest.raises(RunTimeoutError):
            await run.result(timeout=0.01)
    async with KernelExecutor(graph(), url, "letters", home=tmp_path) as second:
        [question] = await second.client.approvals()
        assert question.question == "Send HELLO?"
        await (await second.client.run(run.id)).approve(value="yes")
        assert await second.resume(run.id) == {"text": "HELLO", "verdict": "yes"}
        again = await second.start({"text": "hello"}, idempotency_key="mail-1")
        assert again.id == run.id, "the same key meets the same run"
        with pytest.raises(RunNotFoundError):
            await second.resume("0" * 36)
    assert bodies == ["draft"]


async def test_a_run_is_executed_and_streamed(tmp_path: Path) -> None:
    builder = StateGraph(State)
    builder.add_node(draft)
    builder.add_edge(START, "draft")
    async with KernelExecutor(builder, "memory://", "letters", home=tmp_path) as executor:
        assert await executor.execute({"text": "a"}) == {"text": "A"}
        types = [event.event_type async for event in executor.stream({"text": "b"})]
    assert types[0] == "run.requested"
    assert types[-1] == "run.completed"
