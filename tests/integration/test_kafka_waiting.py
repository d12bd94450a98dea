"""Runs that wait, on a real Kafka: parked, read back from a partition with transaction markers, answered."""

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
from noesium_stream.worker.parking import IDLE_S
from tests.support.graphs import agent_of
from tests.support.hand_clock import HandClock
from tests.support.kafka import KafkaServer
from tests.support.reading import eventually


class State(TypedDict, total=False):
    value: Any


async def node(state: State) -> State:
    step = current_step()
    answer = await step.interrupt("Go on?")
    await step.sleep(timedelta(days=1))
    return {"value": [answer.answered_by, await step.signal("go")]}


async def test_parked_runs_are_answered_woken_and_signalled(kafka: KafkaServer, tmp_path: Path) -> None:
    log, clock = await open_log(f"{kafka.url('w' + secrets.token_hex(4))}&partitions=1"), HandClock()
    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    async with (
        Worker(log, [(agent_of(graph), None)], home=tmp_path, clock=clock) as worker,
        Client(log) as client,
    ):

        async def all_parked() -> bool:
            for owner in worker._hosts[0]._owners.values():
                owner.park_idle()
                clock.advance(IDLE_S)
                owner.park_idle()
                return owner.parked_runs == 3
            return False

        runs = [await client.start("sample", {}) for _ in range(3)]
        async with asyncio.timeout(60):
            while len(await client.approvals()) < 3:
                await asyncio.sleep(0.1)
        await eventually(all_parked)
        for run in runs:
            await run.approve(by="ann")
        async with asyncio.timeout(60):
            for run in runs:
                async for event in run.events():
                    if event.event_type == "timer.started":
                        break
        await eventually(all_parked)
        clock.advance(86_400)
        for number, run in enumerate(runs):
            await run.signal("go", number)
        for number, run in enumerate(runs):
            assert (await run.result(timeout=60))["value"] == ["ann", number]
            numbers = [int(r.header("noesium_seq") or b"-1") async for r in run.records(follow=False)]
            assert numbers == list(range(len(numbers)))
    await log.close()
