"""Temporal: a worker of its server, and a client that starts workflows; a step is an activity."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import peer_common as common
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

ASKED: common.Asked = {}
QUEUE = "bench"
LIMIT = timedelta(seconds=60)


@activity.defn
async def plus_one(n: int) -> int:
    return n + 1


@activity.defn
async def gated(n: int) -> int:
    beating = asyncio.create_task(_beat())
    try:
        await common.pass_gate(ASKED)
    finally:
        beating.cancel()
    return n + 1


async def _beat() -> None:
    """Heartbeats: without them the server learns of a dead worker only at the end of the activity's limit."""
    while True:
        activity.heartbeat()
        await asyncio.sleep(0.5)


@activity.defn
async def message(number: int) -> str:
    return common.text(ASKED)


@workflow.defn
class Chain:
    @workflow.run
    async def run(self, steps: int) -> int:
        n = 0
        for _ in range(steps):
            n = await workflow.execute_activity(plus_one, n, start_to_close_timeout=LIMIT)
        return n


@workflow.defn
class Opened:
    @workflow.run
    async def run(self, number: int) -> int:
        n = await workflow.execute_activity(plus_one, 0, start_to_close_timeout=LIMIT)
        return await workflow.execute_activity(
            gated, n, start_to_close_timeout=10 * LIMIT, heartbeat_timeout=timedelta(seconds=2)
        )


@workflow.defn
class Talk:
    @workflow.run
    async def run(self, count: int) -> int:
        messages: list[str] = []
        while len(messages) < count:
            messages.append(
                await workflow.execute_activity(message, len(messages), start_to_close_timeout=LIMIT)
            )
        return len(messages)


async def worker(asked: common.Asked) -> None:
    ASKED.update(asked)
    served = Worker(
        await Client.connect(asked["address"]),
        task_queue=QUEUE,
        workflows=[Chain, Opened, Talk],
        activities=[plus_one, gated, message],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=asked["at_once"],
    )
    async with served:
        common.say(ready=True)
        await common.forever()


async def client(asked: common.Asked) -> None:
    connected = await Client.connect(asked["address"])

    def runs(kind: Any, given: int, wanted: int) -> common.One:
        async def one(number: int) -> None:
            name = f"{asked['name']}-{kind.__name__}-{number}"
            common.expect(
                await connected.execute_workflow(kind.run, given, id=name, task_queue=QUEUE), wanted
            )

        return one

    async def started(number: int) -> Any:
        name = f"{asked['name']}-{number}"
        handle = await connected.start_workflow(Opened.run, number, id=name, task_queue=QUEUE)
        return handle.result()

    if asked["do"] == "open":
        await common.all_open(asked, started)
    elif asked["do"] == "talk":
        await common.talk(asked, runs(Talk, asked["messages"], asked["messages"]))
    else:
        await common.measure(asked, pair=runs(Chain, 2, 2), chain=runs(Chain, common.STEPS, common.STEPS))


if __name__ == "__main__":
    common.main(worker, client)
