"""The kernel: what a step costs in time and in bytes, and how soon a long run goes on.

Every run of ours is a whole one: a `Client` appends the command, a real `Worker` owns the partition, accepts
it, executes the graph with a commit wherever the kernel wants one, and the client reads the result from the
journal. Only where it says so a part of that is measured. LangGraph's side is `ainvoke` of the same graph
with `durability="sync"`, which waits for each checkpoint.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client, Run
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import partition_of
from noesium_stream.worker import Worker
from noesium_stream.worker.process_settings import tune_process
from tests.bench import waiting
from tests.bench.harness import Figure, Side, interleave, progress
from tests.bench.kernel_agents import agent, chain, conversation, counter

OURS, VERIFY = "a Worker of ours", "verify"
IN_MEMORY, ON_SQLITE = "LangGraph, InMemorySaver", "LangGraph, AsyncSqliteSaver"


@dataclass(frozen=True)
class KernelSettings:
    """Sizes of everything; the defaults are those of a full run. `folder` should lie on a disk."""

    folder: Path
    nodes: int = 300
    repetitions: int = 5
    turns: tuple[int, ...] = (200, 2_000)
    message_bytes: tuple[int, ...] = (2_000, 500)
    resumed: int = 10_000
    replayed: int = 1_000
    waiting: int = 1_000


@asynccontextmanager
async def _working(
    url: str, measured: type[BaseGraphicAgent], home: Path
) -> AsyncIterator[tuple[Client, EventLog]]:
    log = await open_log(url)
    tune_process()
    try:
        async with Worker(log, [measured], home=home), Client(log) as client:
            yield client, log
    finally:
        await log.close()


async def measure_chain(settings: KernelSettings) -> list[Figure]:
    """Milliseconds per node of a chain of trivial nodes, from the command to the result.

    Each repetition has a log (a checkpointer) of its own and runs the chain twice; the second run counts.
    """
    graph, nodes = chain(settings.nodes), settings.nodes
    measured = agent(graph, "chain", nodes)
    name = f"a node of a chain of {nodes}"
    note = "Ours is a whole run: command, acceptance, events and commits of all steps, result read back."
    files = (settings.folder / f"chain-{number}.db" for number in count())
    figures = []
    progress(f"chain: {nodes} nodes, {settings.repetitions} runs of each side")

    async def ours(place: str) -> float:
        # A log of its own for each repetition, as the other side has: what is kept slows the collector.
        url = "memory://" if place == "memory" else f"sqlite:///{next(files)}"
        async with _working(url, measured, settings.folder) as (client, _):
            for _ in range(2):
                gc.collect()
                began = time.perf_counter()
                run = await client.start("chain", {"n": 0})
                await run.result(timeout=120)
                spent = time.perf_counter() - began
        return spent / nodes * 1e3

    async def theirs(saver: BaseCheckpointSaver[Any]) -> float:
        compiled = graph.compile(checkpointer=saver)
        for _ in range(2):
            gc.collect()
            config: Any = {"configurable": {"thread_id": str(uuid4())}, "recursion_limit": nodes + 10}
            began = time.perf_counter()
            state = await compiled.ainvoke({"n": 0}, config, durability="sync")
            spent = time.perf_counter() - began
            assert state["n"] == nodes
        return spent / nodes * 1e3

    async def in_memory() -> float:
        return await theirs(InMemorySaver())

    async def on_sqlite() -> float:
        async with AsyncSqliteSaver.from_conn_string(f"{next(files)}") as saver:
            return await theirs(saver)

    for place, kind, other, target in (
        ("memory", IN_MEMORY, in_memory, 1.3),
        ("sqlite", ON_SQLITE, on_sqlite, 1.0),
    ):
        values = await interleave({OURS: partial(ours, place), kind: other}, settings.repetitions)
        sides = Side(OURS, values[OURS]), Side(kind, values[kind])
        figures.append(Figure("chain", f"{name}, {place}", "ms", *sides, target, at_least=False, note=note))
    return figures


async def measure_history(settings: KernelSettings) -> list[Figure]:
    """Bytes that a conversation leaves in the journal: how they grow, and beside what its nodes returned.

    Bytes are those of all records of the run in its journal: values, and keys and values of headers.
    """
    figures = []
    for size in settings.message_bytes:
        judged = size == max(settings.message_bytes)
        for turns in settings.turns:
            progress(f"history: {turns} and {2 * turns} steps of two messages of {size} bytes")
            (once, _), (twice, deltas) = [
                await _bytes_of(count, size, settings) for count in (turns, 2 * turns)
            ]
            name = f"journal of a conversation, 2 x {size} B a step"
            figures.append(
                Figure(
                    "history",
                    f"{name}, growth",
                    "bytes",
                    Side(f"{2 * turns} steps", [twice]),
                    Side(f"{turns} steps", [once]),
                    2.1 if judged else None,
                    at_least=False,
                )
            )
            figures.append(
                Figure(
                    "history",
                    f"{name}, {2 * turns} steps",
                    "bytes",
                    Side("all its records", [twice]),
                    Side("the nodes' deltas as JSON", [deltas]),
                    1.6 if judged else None,
                    at_least=False,
                )
            )
    return figures


async def _bytes_of(turns: int, size: int, settings: KernelSettings) -> tuple[int, int]:
    """All record bytes of one conversation, and those of its nodes' deltas."""
    measured = agent(conversation(turns, size), "talk", turns)
    async with _working("memory://", measured, settings.folder) as (client, log):
        run = await client.start("talk", {"messages": []})
        await run.result(timeout=600)
        journal = log.topology.journal("talk")
        total = 0
        async for record in log.read(journal, {}, until=await log.end(journal)):
            if record.key == run.id:
                total += len(record.value) + sum(len(key) + len(value) for key, value in record.headers)
        delta = {
            "messages": [
                {"role": "user", "content": "x" * size},
                {"role": "assistant", "content": "x" * size},
            ]
        }
        return total, turns * len(json.dumps(delta, separators=(",", ":")))


async def measure_beside(settings: KernelSettings) -> list[Figure]:
    """Bytes of a conversation in the journal, and in the tables of LangGraph's checkpointer on SQLite.

    Theirs are the contents of its columns that hold states, metadata and writes, without SQLite's own.
    """
    size, turns = min(settings.message_bytes), min(settings.turns)
    figures = []
    for number in (turns, 2 * turns):
        progress(f"beside: {number} steps of two messages of {size} bytes")
        ours, _ = await _bytes_of(number, size, settings)
        theirs = await _bytes_of_checkpoints(number, size)
        name = f"a conversation, 2 x {size} B a step, {number} steps"
        figures.append(
            Figure("beside", name, "bytes", Side(OURS, [ours]), Side(ON_SQLITE, [theirs]), at_least=False)
        )
    return figures


async def _bytes_of_checkpoints(turns: int, size: int) -> int:
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        compiled = conversation(turns, size).compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "talk"}, "recursion_limit": turns + 10}
        await compiled.ainvoke({"messages": []}, config, durability="sync")
        total = 0
        for query in (
            "SELECT sum(length(checkpoint) + length(metadata)) FROM checkpoints",
            "SELECT sum(length(value)) FROM writes",
        ):
            async with saver.conn.execute(query) as rows:
                found = await rows.fetchone()
                total += found[0] if found else 0
        return total


async def measure_resume(settings: KernelSettings) -> list[Figure]:
    """Seconds from opening the log to the body of the next node of a long run, on SQLite.

    The run stands in its node number `resumed` + 1 when its worker goes away; each repetition opens the log
    anew, lets a new worker take the run up, and ends when that body runs again. Beside it: opening the same
    log and decoding the run's journal, and nothing more.
    """
    steps, reached = settings.resumed, asyncio.Event()
    measured = agent(counter(steps, reached), "counter", steps)
    url = f"sqlite:///{settings.folder / 'resume.db'}"
    progress(f"resume: a run of {steps:,} steps is made")
    async with _working(url, measured, settings.folder) as (client, _):
        run = await client.start("counter", {"n": 0})
        await _reached(run, reached)

    async def ours() -> float:
        reached.clear()
        began = time.perf_counter()
        async with _working(url, measured, settings.folder):
            await reached.wait()
            return time.perf_counter() - began

    async def reading() -> float:
        began = time.perf_counter()
        log = await open_log(url)
        try:
            journal = log.topology.journal("counter")
            ends = await log.end(journal)
            partition = partition_of(run.id, len(ends))
            async for batch in log.read_batches(journal, {}, until={partition: ends[partition]}):
                for record in batch:
                    record.envelope  # noqa: B018 - decodes and validates
            return time.perf_counter() - began
        finally:
            await log.close()

    by_hand = "the journal decoded"
    values = await interleave({OURS: ours, by_hand: reading}, min(3, settings.repetitions))
    sides = Side(OURS, values[OURS]), Side(by_hand, values[by_hand])
    name = f"the next node of a run of {steps:,} steps runs"
    return [Figure("resume", name, "s", *sides, 1.0, at_least=False, absolute=True)]


async def _reached(run: Run, reached: asyncio.Event) -> None:
    """Wait for the node; raise what the run ends with before."""
    ends = [asyncio.create_task(run.result()), asyncio.create_task(reached.wait())]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not reached.is_set():
            ends[0].result()
    finally:
        for task in ends:
            task.cancel()


async def measure_waiting(settings: KernelSettings) -> list[Figure]:
    """Resident memory of runs that wait for a person; see `tests.bench.waiting`."""
    return await waiting.measure(settings.folder, settings.waiting)


async def measure_replay(settings: KernelSettings) -> list[Figure]:
    """Steps per second of `verify`: a finished run is read from its journal, executed again without side
    effects, and every delta, event, route and the result are compared. On `memory://`.
    """
    steps = settings.replayed
    graph = counter(steps)
    measured = agent(graph, "counter", steps)
    progress(f"replay: {steps:,} steps")
    async with _working("memory://", measured, settings.folder) as (client, log):
        run = await client.start("counter", {"n": 0})
        await run.result(timeout=120)

        async def ours() -> float:
            target = agent_target(measured, log)
            began = time.perf_counter()
            verdict = await verify(run, target)
            spent = time.perf_counter() - began
            if not verdict.is_same or verdict.steps != steps:
                raise RuntimeError(f"the run is not the same: {verdict}")
            return steps / spent

        async def theirs() -> float:
            compiled = graph.compile()
            began = time.perf_counter()
            await compiled.ainvoke({"n": 0}, {"recursion_limit": steps + 10})
            return steps / (time.perf_counter() - began)

        plain = "LangGraph, no checkpointer"
        values = await interleave({VERIFY: ours, plain: theirs}, min(3, settings.repetitions))
    sides = Side(VERIFY, values[VERIFY]), Side(plain, values[plain])
    return [Figure("replay", f"verify of {steps:,} trivial steps", "steps/s", *sides, 1_000, absolute=True)]
