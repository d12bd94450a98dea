"""A LangGraph graph as durable runs from one program."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from noesium_stream import KernelExecutor, Migration
from noesium_stream.client.operate import result_or_stranded
from noesium_stream.errors import (
    ConfigError,
    InputDiffersError,
    RunNotFoundError,
    RunStrandedError,
    RunTimeoutError,
)
from tests.support.reading import PATIENCE_S

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
        await (await second.client.get_run(run.id)).approve(value="yes")
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


async def test_the_same_key_with_another_input_is_refused(tmp_path: Path) -> None:
    builder = StateGraph(State).add_node(draft).add_edge(START, "draft")
    async with KernelExecutor(builder, "memory://", "letters", home=tmp_path) as executor:
        assert await executor.execute({"text": "a"}, idempotency_key="k") == {"text": "A"}
        assert await executor.execute({"text": "a"}, idempotency_key="k") == {"text": "A"}
        with pytest.raises(InputDiffersError, match="was asked something else"):
            await executor.execute({"text": "b"}, idempotency_key="k")


async def test_a_key_that_the_state_does_not_have_is_refused(tmp_path: Path) -> None:
    async with KernelExecutor(graph(), "memory://", "letters", home=tmp_path) as executor:
        with pytest.raises(ConfigError, match="'txet', which the state State does not have") as told:
            await executor.execute({"txet": "a"})
        assert told.value.hint == "Did you mean 'text'?"
        assert await executor.client.list_runs() == []


async def asked(executor: KernelExecutor) -> str:
    run = await executor.start({"text": "hello"})
    async for event in run.events():
        if event.event_type == "approval.requested":
            break
    return run.id


async def test_a_migration_that_names_no_node_ends_the_wait_for_a_result(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    async with KernelExecutor(graph(), url, "letters", home=tmp_path) as first:
        run_id = await asked(first)
    move = Migration(graph(), "1.0.0", nodes={"nobody": "draft"})
    newer = StateGraph(State).add_node(draft).add_edge(START, "draft")
    second = KernelExecutor(newer, url, "letters", version="2.0.0", migrations=[move], home=tmp_path)
    with pytest.raises(ConfigError, match="nobody"):
        async with second as executor:
            await executor.resume(run_id, timeout=PATIENCE_S)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_run_of_another_graph_ends_the_wait_with_the_reason(tmp_path: Path, times: int) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    async with KernelExecutor(graph(), url, "letters", home=tmp_path) as first:
        run_id = await asked(first)
    newer = StateGraph(State).add_node(draft).add_edge(START, "draft")
    for _ in range(times):  # the second worker finds the reason on the log and writes none
        async with KernelExecutor(newer, url, "letters", version="2.0.0", home=tmp_path) as executor:
            with pytest.raises(RunStrandedError, match="is stranded: it waits for") as told:
                await executor.resume(run_id, timeout=result_or_stranded.PATIENCE_S - 1)
            assert "no migration from it" in told.value.reason
    async with KernelExecutor(graph(), url, "letters", home=tmp_path) as again:
        await (await again.client.get_run(run_id)).approve(value="yes")
        assert await again.resume(run_id, timeout=PATIENCE_S) == {"text": "HELLO", "verdict": "yes"}


async def test_a_run_that_somebody_else_has_left_stranded_is_waited_for_no_longer_than_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_or_stranded, "PATIENCE_S", 0.01)
    url = f"sqlite:///{tmp_path}/log.db"
    async with KernelExecutor(graph(), url, "letters", home=tmp_path) as first:
        run_id = await asked(first)
    newer = StateGraph(State).add_node(draft).add_edge(START, "draft")
    async with KernelExecutor(newer, url, "letters", version="2.0.0", home=tmp_path) as executor:
        with pytest.raises(RunStrandedError):
            await executor.resume(run_id, timeout=PATIENCE_S)
        executor._left = (
            result_or_stranded.StrandedRuns()
        )  # as if the worker that has left it stranded were in another process
        with pytest.raises(RunStrandedError, match="no migration"):
            await executor.resume(run_id, timeout=PATIENCE_S)
