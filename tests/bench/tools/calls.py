"""Tool calls: beside effects of the same graph, many at the same time, and what judging one costs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.tool import Mode, tool, tool_of_function
from noesium_stream.tool.judge import judge, rules_for
from noesium_stream.worker import Worker
from tests.bench.harness import Figure, Side, interleave, percentile
from tests.bench.place import kafka_log
from tests.support.kafka import KafkaServer

SLEEP_S = 0.05
JUDGED = 2_000


@dataclass(frozen=True)
class ToolSettings:
    """Sizes; the defaults are those of a full run. `folder` is where logs and workers keep their files."""

    folder: Path
    repetitions: int = 5
    calls: int = 100


class _Work(TypedDict, total=False):
    how: str
    calls: int
    seconds: float


@tool(side_effects=SideEffectClass.IDEMPOTENT, permissions=("fs:read:{path}",))
async def look(path: str, limit: int = 10) -> dict[str, Any]:
    """Look something up."""
    return {"path": path, "limit": limit}


@tool(side_effects=SideEffectClass.IDEMPOTENT)
async def wait(number: int) -> int:
    """Wait."""
    await asyncio.sleep(SLEEP_S)
    return number


async def _bare(path: str, limit: int) -> dict[str, Any]:
    return await look(path, limit)


async def work(state: _Work) -> dict[str, Any]:
    """Make the calls; the seconds from the first one to the last result."""
    step, begun = current_step(), perf_counter()
    paths = [f"a/{number}.txt" for number in range(state["calls"])]
    if state["how"] == "tool":
        for path in paths:
            await step.tool("look", path=path, limit=3)
    elif state["how"] == "effect":
        for path in paths:
            await step.effect("look", _bare, path, 3, effect_class=SideEffectClass.IDEMPOTENT)
    else:
        await asyncio.gather(*(step.tool("wait", number=number) for number in range(state["calls"])))
    return {"seconds": perf_counter() - begun}


def worker_kind() -> Any:
    """The agent that makes the calls."""
    graph = StateGraph(_Work)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    kind = agent_from_graph(graph, "caller")
    kind.tools, kind.mode, kind.permissions = (look, wait), Mode.AUTO, ("fs:read",)
    return kind


@asynccontextmanager
async def _calling(log: EventLog, home: Path) -> AsyncIterator[Callable[[str, int], Awaitable[float]]]:
    async with Worker(log, [worker_kind()], home=home), Client(log) as client:

        async def calls(how: str, count: int) -> float:
            run = await client.start("caller", {"how": how, "calls": count})
            found = await run.result(timeout=600)
            return float(found["seconds"])

        await calls("tool", 3)
        await calls("effect", 3)
        yield calls


@asynccontextmanager
async def _logs(settings: ToolSettings, kafka: KafkaServer) -> AsyncIterator[dict[str, EventLog]]:
    url = f"sqlite:///{settings.folder / f'{secrets.token_hex(4)}.db'}"
    log = await open_log(url)
    try:
        async with kafka_log(kafka, "&partitions=1") as other:
            yield {"SQLite": log, "Kafka": other}
    finally:
        await log.close()


async def measure_calls(settings: ToolSettings, kafka: KafkaServer) -> list[Figure]:
    """Milliseconds of a call in a sequence, beside the same effect; seconds of many at the same time."""
    figures: list[Figure] = []
    async with _logs(settings, kafka) as logs:
        for name, log in logs.items():
            home = settings.folder / secrets.token_hex(4)
            async with _calling(log, home) as calls:
                figures += await _of_log(settings, name, calls)
    return figures


async def _of_log(
    settings: ToolSettings, name: str, calls: Callable[[str, int], Awaitable[float]]
) -> list[Figure]:
    async def each(how: str) -> float:
        return await calls(how, settings.calls) / settings.calls * 1e3

    values = await interleave(
        {
            "tool": lambda: each("tool"),
            "effect": lambda: each("effect"),
            "many": lambda: calls("many", settings.calls),
            "one": lambda: calls("many", 1),
        },
        settings.repetitions,
    )
    commit = min(values["effect"]) / 1e3
    return [
        Figure(
            "calls",
            f"a tool call, beside the same effect, {name}",
            "ms",
            Side("step.tool", values["tool"]),
            Side("step.effect", values["effect"]),
            1.15,
            at_least=False,
        ),
        Figure(
            "calls",
            f"{settings.calls} calls of {SLEEP_S * 1e3:g} ms at the same time, {name}",
            "s",
            Side("together", values["many"]),
            Side("one alone", values["one"]),
            0.25 + commit,
            at_least=False,
            absolute=True,
            note=f"0.25 s and a commit of {commit * 1e3:.1f} ms",
        ),
    ]


async def measure_judging(settings: ToolSettings, kafka: KafkaServer) -> list[Figure]:
    """Microseconds to judge a call by permissions and rules and to validate its arguments, p50."""
    one = tool_of_function(look)
    rules = rules_for(None, "caller", ("fs:read:a/**", "net:outbound:*.example.com"), Mode.AUTO)

    async def judged() -> float:
        took = []
        for number in range(JUDGED):
            arguments = {"path": f"a/{number}.txt", "limit": number}
            begun = perf_counter()
            judge(one, arguments, rules)
            one.check_input(arguments)
            took.append(perf_counter() - begun)
        return percentile(took, 0.5) * 1e6

    async def unjudged() -> float:
        took = []
        for number in range(JUDGED):
            arguments = {"path": f"a/{number}.txt", "limit": number}
            begun = perf_counter()
            one.check_input(arguments)
            took.append(perf_counter() - begun)
        return percentile(took, 0.5) * 1e6

    values = await interleave({"judged": judged, "validated": unjudged}, settings.repetitions)
    return [
        Figure(
            "judging",
            "permissions and validation of a call, p50",
            "µs",
            Side("both", values["judged"]),
            Side("validation alone", values["validated"]),
            30.0,
            at_least=False,
            absolute=True,
        )
    ]
