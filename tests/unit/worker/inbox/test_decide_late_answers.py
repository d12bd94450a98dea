"""An answer to a question that is closed is skipped, and told; it is no dead letter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.client.views.approvals import Approval
from noesium_stream.errors import ApprovalClosedError
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S

ANN, BOB = "ann", "bob"
AMOUNT = {"type": "object", "properties": {"amount": {"type": "integer"}}}


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


def worker(log: EventLog, home: Path, said: list[str]) -> Worker:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        answer = await step.interrupt("How much?", schema=AMOUNT, approvers=[ANN, BOB])
        return {"value": answer.value, "by": answer.answered_by, "then": await step.signal("go")}

    graph = StateGraph(dict)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return Worker(log, [agent_from_graph(graph)], home=home, progress=said.append)


async def asked(run: Run) -> Approval:
    async with aclosing(run.events()) as events:
        async for event in events:
            if event.event_type == "approval.requested":
                break
    [question] = await run.approvals()
    return question


async def send(log: EventLog, question: Approval, approved: bool, amount: int | None, by: str) -> None:
    """Append an answer as one who does not know of the others."""
    value = None if amount is None else {"amount": amount}
    event = question.answer(approved, value, by).to_envelope(
        AgentRef(by, "client"),
        TraceContext("1" * 32, "2" * 16),
        partition_key=question.run_id,
        metadata={"to": "sample"},
    )
    await log.append([event])


async def letters(log: EventLog) -> list[str]:
    dlq = log.topology.dlq
    records = log.read(dlq, {}, until=await log.end(dlq))
    return [record.envelope.payload["failure_reason"] async for record in records]


Late = Callable[[EventLog, Approval], Any]
LATE: dict[str, Late] = {
    "the same yes": lambda log, question: send(log, question, True, 1, BOB),
    "another yes": lambda log, question: send(log, question, True, 2, BOB),
    "a no": lambda log, question: send(log, question, False, None, BOB),
    "a no of who said yes": lambda log, question: send(log, question, False, None, ANN),
}


@pytest.mark.parametrize("first", [(True, 1), (False, None)], ids=["approved", "rejected"])
@pytest.mark.parametrize("which", LATE)
@pytest.mark.parametrize("at_once", [True, False], ids=["in one batch", "later"])
async def test_a_second_answer_is_skipped_and_told(
    log: EventLog, tmp_path: Path, which: str, first: tuple[bool, int | None], at_once: bool
) -> None:
    said: list[str] = []
    async with Client(log) as client:
        run = await client.start("sample", {})
        async with worker(log, tmp_path, said):
            question = await asked(run)
            if not at_once:
                await send(log, question, *first, ANN)
                await answered(run)
        if at_once:
            await send(log, question, *first, ANN)
        await LATE[which](log, question)
        await run.signal("go", "on")
        async with worker(log, tmp_path, said):
            result = await run.result(timeout=PATIENCE_S)
    assert result["by"] == ANN
    assert (result["value"] or {}).get("amount") == first[1]
    assert await letters(log) == []
    told = [line for line in said if "too late" in line]
    assert len(told) == 1, said
    assert told[0].startswith(f"run {run.id}: ")
    assert "the first answer counts" in told[0]


async def answered(run: Run) -> None:
    async with aclosing(run.events()) as events:
        async for event in events:
            if event.event_type == "approval.answered":
                return


async def test_who_answers_late_hears_whose_answer_counts(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client, worker(log, tmp_path, []):
        run = await client.start("sample", {})
        await asked(run)
        await run.approve(value={"amount": 1}, by=ANN)
        await answered(run)
        with pytest.raises(ApprovalClosedError, match="was approved by ann"):
            await run.approve(value={"amount": 2}, by=BOB)


async def test_what_is_no_answer_to_it_is_still_a_dead_letter(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        run = await client.start("sample", {})
        async with worker(log, tmp_path, []):
            question = await asked(run)
            await send(log, question, True, 1, ANN)
            await answered(run)
        await send(log, replace(question, fingerprint="0" * 64), True, 1, BOB)
        await send(log, replace(question, approvers=()), True, 1, "mallory")
        await run.signal("go", "on")
        async with worker(log, tmp_path, []):
            await run.result(timeout=PATIENCE_S)
    assert [text.split(":")[0].removeprefix("payload.") for text in await letters(log)] == [
        "fingerprint",
        "answered_by",
    ]
