"""What is too large fails its own run, with a reason, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

from noesium_stream.errors import RecordTooLargeError, RunFailedError
from noesium_stream.event import DomainEvent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.log.prepare import MAX_JOURNAL_BYTES, MAX_RECORD_BYTES
from tests.support.graphs import running
from tests.support.reading import PATIENCE_S


class State(TypedDict, total=False):
    what: str
    text: str


class Blob(DomainEvent, event_type="test.blob"):
    text: str


async def large_text() -> str:
    return "x" * MAX_JOURNAL_BYTES


async def node(state: State) -> dict[str, Any]:
    if state["what"] == "delta":
        return {"text": await large_text()}
    if state["what"] == "event":
        return {"_pending_events": [Blob(text=await large_text())]}
    if state["what"] == "effect":
        await current_step().effect("large", large_text, effect_class=SideEffectClass.PURE)
    if state["what"] == "error":
        raise ValueError(await large_text())
    if state["what"] == "half":
        return {"text": "x" * (MAX_JOURNAL_BYTES // 2 + 1000)}
    return {}


def graph(**options: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(State)
    graph.add_node("a", node, **options)
    graph.add_node("b", lambda state: {"what": state.get("text") or state["what"]})
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    return graph


@pytest.mark.parametrize("what", ["delta", "event", "effect", "error"])
@pytest.mark.parametrize("retries", [1, 3])
async def test_a_run_that_would_write_too_much_fails_and_the_next_one_runs(
    tmp_path: Path, what: str, retries: int
) -> None:
    policy = RetryPolicy(
        max_attempts=retries, initial_interval=0.001, jitter=False, retry_on=lambda error: True
    )
    async with running(graph(retry_policy=policy), tmp_path) as client:
        client.log.catalogue.register(Blob)
        run = await client.start("sample", {"what": what})
        with pytest.raises(RunFailedError, match="ValueError" if what == "error" else "RecordTooLargeError"):
            await run.result(timeout=PATIENCE_S)
        numbers = [int(record.header("noesium_seq") or b"-1") async for record in run.records(follow=False)]
        assert numbers == list(range(len(numbers)))
        assert (await (await client.start("sample", {"what": "ok"})).result(timeout=PATIENCE_S))[
            "what"
        ] == "ok"


async def test_a_result_that_is_too_large_fails_the_run(tmp_path: Path) -> None:
    async with running(graph(), tmp_path) as client:
        run = await client.start("sample", {"what": "half"})
        # Both fields have half a megabyte: each delta fits into a record, the result does not.
        with pytest.raises(RunFailedError, match="RecordTooLargeError"):
            await run.result(timeout=PATIENCE_S)
        assert (await (await client.start("sample", {"what": "ok"})).result(timeout=PATIENCE_S))[
            "what"
        ] == "ok"


async def test_the_largest_command_that_an_inbox_takes_is_accepted(tmp_path: Path) -> None:
    async with running(graph(), tmp_path) as client:
        size = MAX_RECORD_BYTES
        while True:
            try:
                run = await client.start("sample", {"what": "ok", "text": "x" * size})
                break
            except RecordTooLargeError:
                size -= 8
        with pytest.raises(RunFailedError, match="RecordTooLargeError"):
            await run.result(timeout=PATIENCE_S)  # its result holds the text twice
        assert (await (await client.start("sample", {"what": "ok"})).result(timeout=PATIENCE_S))[
            "what"
        ] == "ok"
