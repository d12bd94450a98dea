"""Agents that have a program, a caller, and a worker for both on a log in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream import Retries, SideEffectClass, agent_from_graph, capability, cli_subagent, current_step
from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client, Run
from noesium_stream.event import EventEnvelope
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.daemons import command
from tests.support.reading import PATIENCE_S

AT_ONCE = Retries(max_attempts=3, initial_interval=0, max_interval=0, jitter=0)


@capability("test.task")
def task(how: str = "good", session: str = "") -> Any:
    """What a test asks for."""


@capability("test.again", side_effects=SideEffectClass.IDEMPOTENT)
def again(how: str = "good") -> Any:
    """What may be repeated."""


def program(how: str = "good", *, pids: Path | None = None, **declared: Any) -> type[BaseGraphicAgent]:
    """An agent of the type `test` whose program is `tests/support/hostile_daemon.py`; it offers `task`."""
    environment = ["PATH"] if pids is None else ["PATH", f"PIDS={pids}"]
    declared = {"restarts": AT_ONCE, "environment": environment, **declared}
    return cli_subagent("test", command(how), declared.pop("offers", [task]), **declared)


class _Calls(TypedDict, total=False):
    payloads: list[dict[str, Any]]
    replies: list[Any]


async def _call(state: _Calls) -> dict[str, Any]:
    step = current_step()
    return {"replies": [await step.invoke("test.task", payload) for payload in state["payloads"]]}


CALLER = agent_from_graph(StateGraph(_Calls).add_node("call", _call).add_edge(START, "call"), "caller")


class Play:
    """A worker with a program's agent and its caller, and what they have done."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def replies(self, *payloads: dict[str, Any]) -> list[Any]:
        """The answers to calls that one run of another agent makes."""
        run = await self.client.start("caller", {"payloads": list(payloads)})
        found = (await run.result(timeout=PATIENCE_S))["replies"]
        assert isinstance(found, list)
        return found

    async def result(self, **payload: Any) -> Any:
        """The result of a run of the program's agent, asked for by nobody else."""
        return await (await self.client.start("test", payload)).result(timeout=PATIENCE_S)

    async def events(self, run: Run) -> list[EventEnvelope]:
        """The journal of a run."""
        return [event async for event in run.events(follow=False)]


@asynccontextmanager
async def playing(kind: type[BaseGraphicAgent], home: Path) -> AsyncIterator[Play]:
    log = await open_log("memory://")
    try:
        async with Worker(log, [kind, CALLER], home=home), Client(log) as client:
            yield Play(client)
    finally:
        await log.close()
