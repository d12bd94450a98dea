"""Runs that wait, on a real Kafka: evicted, read back from a partition with transaction markers, answered."""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.client import Client
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.eviction import IDLE_S
from tests.support.graphs import agent_from_graph
from tests.support.hand_clock import HandClock
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S, eventually


class State(TypedDict, total=False):
    value: Any


async def node(state: State) -> State:
    step = current_step()
    answer = await step.interrupt("Go on?")
    await step.sleep(timedelta(days=1))
    return {"value": [answer.answered_by, await step.signal("go")]}


async def test_evicted_runs_are_answered_woken_and_signalled(kafka: KafkaServer, tmp_path: Path) -> None:
    log, clock = await open_log(f"{kafka.url('w' + secrets.token_hex(4))}&partitions=1"), HandClock()
    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    async with (
        Worker(log, [agent_from_graph(graph)], home=tmp_path, clock=clock) as worker,
        Client(log) as client,
    ):

        async def all_evicted() -> bool:
            for tenure in worker.tenures():
                tenure.evict_idle()
                clock.advance(IDLE_S)
                tenure.evict_idle()
                return bool(tenure.evicted_runs == 3)
            return False

        runs = [await client.start("sample", {}) for _ in range(3)]
        async with asyncio.timeout(PATIENCE_S):
            while len(await client.approvals()) < 3:
                await asyncio.sleep(0.1)
        await eventually(all_evicted)
        for run in runs:
            await run.approve(by="ann")
        async with asyncio.timeout(PATIENCE_S):
            for run in runs:
                async for event in run.events():
                    if event.event_type == "timer.started":
                        break
        await eventually(all_evicted)
        clock.advance(86_400)
        for number, run in enumerate(runs):
            await run.signal("go", number)
        for number, run in enumerate(runs):
            assert (await run.result(timeout=PATIENCE_S))["value"] == ["ann", number]
            numbers = [int(r.header("noesium_seq") or b"-1") async for r in run.records(follow=False)]
            assert numbers == list(range(len(numbers)))
    await log.close()
