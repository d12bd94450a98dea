"""DBOS: workflows are started in the process that executes them, as in its own guides; there is no worker.

A client in a process of its own would go through a queue that is polled once a second.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Any

import peer_common as common
from dbos import DBOS, DBOSConfig, SetWorkflowID

ASKED: common.Asked = {}


@DBOS.step()
async def plus_one(n: int) -> int:
    return n + 1


@DBOS.step()
async def gated(n: int) -> int:
    await common.pass_gate(ASKED)
    return n + 1


@DBOS.step()
async def message(number: int) -> str:
    return common.text(ASKED)


@DBOS.workflow()
async def chain(steps: int) -> int:
    n = 0
    for _ in range(steps):
        n = await plus_one(n)
    return n


@DBOS.workflow()
async def opened() -> int:
    return await gated(await plus_one(0))


@DBOS.workflow()
async def talk() -> int:
    messages: list[str] = []
    while len(messages) < ASKED["messages"]:
        messages.append(await message(len(messages)))
    return len(messages)


async def done(started: Awaitable[Any], wanted: int) -> None:
    """Wait for the result of a workflow that is being started."""
    common.expect(await (await started).get_result(), wanted)


async def open_runs(asked: common.Asked) -> None:
    """Start the runs, or wait for those that the launch has recovered."""
    names = [f"{asked['name']}-{number}" for number in range(asked["count"])]
    if asked.get("resume"):
        handles = [await DBOS.retrieve_workflow_async(name) for name in names]
    else:
        handles = []
        for name in names:
            with SetWorkflowID(name):
                handles.append(await DBOS.start_workflow_async(opened))
    for handle in handles:
        common.expect(await handle.get_result(polling_interval_sec=0.05), 2)
    common.say(done_at=time.monotonic())


async def client(asked: common.Asked) -> None:
    ASKED.update(asked)
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": asked["dsn"],
        "log_level": "ERROR",
        "enable_otlp": False,
    }
    DBOS(config=config)
    DBOS.launch()

    async def pair(number: int) -> None:
        await done(DBOS.start_workflow_async(chain, 2), 2)

    async def ten(number: int) -> None:
        await done(DBOS.start_workflow_async(chain, common.STEPS), common.STEPS)

    async def conversation(number: int) -> None:
        await done(DBOS.start_workflow_async(talk), asked["messages"])

    if asked["do"] == "open":
        await open_runs(asked)
    elif asked["do"] == "talk":
        await common.talk(asked, conversation)
    else:
        await common.measure(asked, pair=pair, chain=ten)
    DBOS.destroy()


if __name__ == "__main__":
    common.main(client, client)
