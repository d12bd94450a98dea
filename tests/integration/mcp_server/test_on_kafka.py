"""MCP on a real Kafka: server processes that are killed, and a client that goes on at another one."""

from __future__ import annotations

import asyncio
import secrets
import signal
from pathlib import Path
from typing import Any, ClassVar

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from noesium_stream import capability, current_step
from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client
from noesium_stream.mcp_server.calls import KEY_FIELD
from tests.support.kafka import KafkaServer
from tests.support.mcp_serving import Place, Served, Task

KEYED: dict[str, Any] = {KEY_FIELD: "order-7"}


class Till(BaseGraphicAgent):
    """Pays, and counts how often."""

    agent_type = "till"
    paid: ClassVar[list[int]] = []

    @capability("till.pay")
    async def pay(self, amount: int) -> str:
        """Pay when a signal comes."""
        await current_step().signal("go")
        self.paid.append(amount)
        return f"paid {amount}"

    @capability("till.refund")
    async def refund(self, amount: int) -> str:
        """Pay back, if a person agrees."""
        answer = await current_step().interrupt(f"Refund {amount}?")
        self.paid.append(-amount)
        return f"{answer.answered_by} agreed to {amount}"


@pytest.fixture
def place(kafka: KafkaServer, tmp_path: Path) -> Place:
    Till.paid.clear()
    return Place(tmp_path, f"{kafka.url('m' + secrets.token_hex(4))}&partitions=2")


def kill(server: Served) -> None:
    server.process.signal(signal.SIGKILL)
    server.process.wait()


async def begun(server: Served, tool: str) -> Task:
    """The task of a call with a key, by the SDK's client."""
    async with server.client(tasks=True) as client:
        task = await client.session.call_tool(
            tool, {"amount": 70}, meta=KEYED, allow_input_required=True, allow_claimed=True
        )
    assert isinstance(task, Task)
    return task


async def test_a_client_finds_the_task_of_a_killed_server_at_another_one(place: Place) -> None:
    async with place.working(Till) as log, Client(log) as runs:
        with place.serving("--task-after", "0") as first, place.serving("--task-after", "0") as second:
            task = await begun(first, "till.refund")
            kill(first)
            assert (await begun(second, "till.refund")).task_id == task.task_id
            asked = await second.task(task.task_id, "input_required")
            [question] = asked["inputRequests"]
            answers = {question: {"action": "accept", "content": {}}}
            await second.ask("tasks/update", {"taskId": task.task_id, "inputResponses": answers})
            done = await second.task(task.task_id, "completed")
            [run] = await runs.list_runs()
    assert done["result"]["content"][0]["text"] == "mcp agreed to 70"
    assert task.task_id == f"till.{run.run_id}"
    assert Till.paid == [-70]


async def test_a_call_whose_server_is_killed_is_made_once_when_it_is_repeated_at_another_one(
    place: Place,
) -> None:
    call = {"name": "till.pay", "arguments": {"amount": 5}, "_meta": KEYED}
    async with place.working(Till) as log, Client(log) as runs:
        with place.serving() as first, place.serving() as second:

            async def by_the_sdk() -> None:
                async with first.client() as client:
                    await client.session.call_tool("till.pay", {"amount": 5}, meta=KEYED)

            async def waiting() -> str:
                while True:
                    for found in await runs.list_runs():
                        if found.status == "waiting":
                            return found.run_id
                    await asyncio.sleep(0.02)

            lost = asyncio.create_task(by_the_sdk())
            async with asyncio.timeout(60):
                run_id = await waiting()
            kill(first)
            with pytest.raises((MCPError, ExceptionGroup)):
                await lost
            again = asyncio.create_task(second.ask("tools/call", dict(call), tasks=False))
            await runs.run_handle("till", run_id).signal("go")
            said = await again
            assert await second.ask("tools/call", dict(call), tasks=False) == said
            assert [found.run_id for found in await runs.list_runs()] == [run_id]
    assert types.CallToolResult.model_validate(said).structured_content == "paid 5"
    assert Till.paid == [5]
