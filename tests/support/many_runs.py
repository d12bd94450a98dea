"""A log with runs of every kind, each left where its name says: for folds that have to know them all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

from noesium_stream import agent_from_graph
from noesium_stream.agent import BaseGraphicAgent, agent_from_tools
from noesium_stream.client import Client, Run
from noesium_stream.errors import NoesiumError
from noesium_stream.event.standard import Capability, MemoryWritten, ToolCompleted, ToolFailed, ToolInvoked
from noesium_stream.kernel import Migration, current_step
from noesium_stream.kernel.retry import Retries
from noesium_stream.log import EventLog, open_log
from noesium_stream.worker import Worker
from tests.support import undo
from tests.support.effects import reached
from tests.support.reading import PATIENCE_S, expired
from tests.support.sample_agents import OBJECT, Asker, Echo

TRIED: Counter[str] = Counter()
HOUR = timedelta(hours=1)


class Do(TypedDict, total=False):
    what: str
    done: str


async def _hang(idempotency_key: str) -> None:
    await asyncio.Event().wait()


def _fail(idempotency_key: str) -> None:
    raise ConnectionError("nobody is there")


async def _effect(what: str) -> Any:
    step = current_step()
    if what == "effect that works":
        return await step.effect("works", str.upper, "x")
    if what == "effect that fails":
        return await step.effect("broken", _fail)
    if what == "effect that is retried":
        return await step.effect(
            "broken", _fail, retries=Retries(max_attempts=3, initial_interval=timedelta(0))
        )
    return await step.effect("hanging", _hang)


async def _wait(what: str) -> Any:
    step = current_step()
    if what.startswith("question"):
        return (await step.interrupt("May I?", approvers=["ann"] if what.endswith("ann") else None)).approved
    if what == "expired question":
        answer = await step.interrupt("Anyone?", timeout=timedelta(milliseconds=5), on_timeout="reject")
        return answer.approved
    if what == "signal":
        return await step.signal("go")
    await step.sleep(timedelta(milliseconds=1) if what == "short sleep" else HOUR)
    return what


def _pending() -> dict[str, Any]:
    call = {"tool_id": "t", "tool_name": "find"}
    return {
        "done": "tools",
        "_pending_events": [
            ToolInvoked(call_id="1", source="here", input={"q": "x"}, **call),
            ToolCompleted(call_id="1", output=[1], duration_ms=3, **call),
            ToolInvoked(call_id="2", source="here", input={"q": "y"}, **call),
            ToolFailed(call_id="2", error_type="KeyError", error="no y", duration_ms=4, **call),
            MemoryWritten(key="favourite", value={"colour": "green"}, value_type="object"),
        ],
    }


async def _act(state: Do) -> dict[str, Any]:
    what, step = state["what"], current_step()
    if what == "tools":
        return _pending()
    if what in ("failure", "retried", "given up"):
        TRIED[step.run_id] += 1
        if what != "retried" or TRIED[step.run_id] < 3:
            raise (ValueError if what == "failure" else ConnectionError)(f"told to, {what}")
    elif "effect" in what:
        return {"done": str(await _effect(what))}
    elif what == "nobody":
        await step.invoke("no.such", {}, on_unresolved="fail")
    elif what == "tool of another":
        return {"done": str(await step.call_tool("sums", "add", {"a": 1, "b": 2}))}
    elif what == "child that sleeps":
        await step.invoke("do.it", {"what": "long sleep"}, allow_cycle=True)
    elif what != "nothing":
        return {"done": str(await _wait(what))}
    return {"done": what}


def _graph(*names: str) -> StateGraph[Any, Any, Any, Any]:
    builder = StateGraph(Do)
    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False)
    before = START
    for name in names:
        retry = policy if name == "act" else None
        builder.add_node(name, _act if name == "act" else lambda state: {}, retry_policy=retry)
        builder.add_edge(before, name)
        before = name
    return builder


def add(a: int, b: int) -> int:
    return a + b


OFFERS = (Capability(id="do.it", input_schema=OBJECT, output_schema=OBJECT),)
DOER = agent_from_graph(_graph("begin", "act"), "doer", capabilities=OFFERS)
OLD = agent_from_graph(_graph("begin", "act"), "mover")
NEW = agent_from_graph(
    _graph("begin", "act", "close"), "mover", version="2.0.0", migrations=[Migration(_graph("begin", "act"))]
)
STAYER = agent_from_graph(_graph("begin", "act"), "stayer")
OTHER = agent_from_graph(_graph("start", "act"), "stayer", version="2.0.0")
TOOLS = agent_from_tools("calculator", "sums", [add])

DONE = (
    *("nothing", "failure", "retried", "given up", "effect that works", "effect that fails"),
    *("effect that is retried", "expired question", "short sleep", "tools", "nobody", "tool of another"),
)
OPEN = {
    "question": "approval.requested",
    "question to ann": "approval.requested",
    "signal": "kernel.node.entered",
    "long sleep": "timer.started",
    "effect of unknown outcome": "effect.requested",
    "child that sleeps": "capability.invoked",
}


@asynccontextmanager
async def many_runs(url: str, home: Path) -> AsyncIterator[tuple[EventLog, Client, dict[str, Run]]]:
    """The log, and the runs by name; no worker is there any more."""
    TRIED.clear()
    undo.new_world(fails={"cancel hotel": 99})
    log = await open_log(url)
    try:
        async with Client(log) as client:
            for event in Asker.events:
                log.catalogue.register(event)
            runs = await _made(log, client, home)
            yield log, client, runs
    finally:
        await log.close()


async def _made(log: EventLog, client: Client, home: Path) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    runs["expired"] = await client.start("doer", {"what": "nothing"}, ttl=0.001)
    await expired()
    async with _workers(log, home / "1", DOER, TOOLS, OLD, STAYER, Asker, Echo, undo.Traveller):
        for what in (*DONE, *OPEN):
            runs[what] = await client.start("doer", {"what": what})
        for what in ("cancelled", "answered", "refused", "signalled"):
            waits = {"cancelled": "child that sleeps", "signalled": "signal"}.get(what, "question")
            runs[what] = await client.start("doer", {"what": waits})
        runs["moved"] = await client.start("mover", {"what": "question"})
        runs["parked"] = await client.start("stayer", {"what": "question"})
        runs["delegated"] = await client.start("asker", {"words": ["a", "b"]})
        runs["delegated in vain"] = await client.start("asker", {"words": ["a", "fail"]})
        runs["undone"] = await client.start("traveller", {"ending": "fail"})
        for name in ("cancelled", "answered", "refused", "moved", "parked"):
            await reached(runs[name], "capability.invoked" if name == "cancelled" else "approval.requested")
        await runs["cancelled"].cancel("enough")
        await runs["answered"].approve(by="ann")
        await runs["refused"].reject(by="bob", value="no")
        await runs["signalled"].signal("go", 7)
        await runs["undone"].events().__anext__()
        await reached(runs["undone"], "effect.failed", awaits_decision=True)
        ended = ("cancelled", "answered", "refused", "signalled", "delegated", "delegated in vain", "expired")
        for name in (*DONE, *ended):
            await _ended(runs[name])
        for name, event_type in OPEN.items():
            await reached(runs[name], event_type)
    async with _workers(log, home / "2", DOER, NEW, OTHER, undo.Traveller):
        await reached(runs["effect of unknown outcome"], "effect.outcome.unknown")
        await reached(runs["moved"], "run.migrated")
        await runs["moved"].approve()
        await _ended(runs["moved"])
        await reached(runs["parked"], "run.parked")
    return runs


@asynccontextmanager
async def _workers(log: EventLog, home: Path, *agents: type[BaseGraphicAgent]) -> AsyncIterator[None]:
    async with Worker(log, agents, home=home):
        yield


async def _ended(run: Run) -> None:
    try:
        await run.result(timeout=PATIENCE_S)
    except NoesiumError:
        return
