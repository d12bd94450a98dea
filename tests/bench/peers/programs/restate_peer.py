"""Restate: an endpoint that its server calls over HTTP/2, and a client of the server's ingress."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import hypercorn
import hypercorn.asyncio
import peer_common as common
import restate
from restate import Context, ObjectContext

ASKED: common.Asked = {}
runs = restate.Service("runs")
talks = restate.VirtualObject("talks")


async def plus_one(n: int) -> int:
    return n + 1


async def gated(n: int) -> int:
    await common.pass_gate(ASKED)
    return n + 1


@runs.handler()
async def chain(context: Context, steps: int) -> int:
    n = 0
    for number in range(steps):
        n = await context.run_typed(f"step-{number}", plus_one, n=n)
    return n


@runs.handler()
async def opened(context: Context, number: int) -> int:
    n = await context.run_typed("first", plus_one, n=0)
    return await context.run_typed("second", gated, n=n)


@talks.handler()
async def turn(context: ObjectContext, message: str) -> int:
    """A message of a conversation, whose state is its list of messages."""
    messages = await context.get("messages", type_hint=list[str]) or []
    messages.append(message)
    context.set("messages", messages)
    return len(messages)


async def worker(asked: common.Asked) -> None:
    ASKED.update(asked)
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{asked['port']}"]
    config.h2_max_concurrent_streams = 1_000
    config.errorlog = config.accesslog = None
    app: Any = restate.app(services=[runs, talks])
    serving = asyncio.create_task(hypercorn.asyncio.serve(app, config))
    await _listening(asked["port"])
    if asked["register"]:
        uri = f"http://127.0.0.1:{asked['port']}"
        async with aiohttp.ClientSession(raise_for_status=True) as admin:
            await admin.post(f"{asked['admin']}/deployments", json={"uri": uri})
    common.say(ready=True)
    await serving


async def _listening(port: int) -> None:
    """Return when the endpoint takes connections."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return


async def client(asked: common.Asked) -> None:
    # The connection pool of httpx takes most of the processor's time of 200 calls at once, this one little.
    session = aiohttp.ClientSession(
        asked["ingress"],
        connector=aiohttp.TCPConnector(limit=1_000),
        timeout=aiohttp.ClientTimeout(600),
        raise_for_status=True,
    )
    async with session as ingress:

        async def call(path: str, given: Any) -> Any:
            async with ingress.post(path, json=given) as answer:
                return await answer.json()

        async def pair(number: int) -> None:
            common.expect(await call("/runs/chain", 2), 2)

        async def ten(number: int) -> None:
            common.expect(await call("/runs/chain", common.STEPS), common.STEPS)

        async def conversation(number: int) -> None:
            for turned in range(asked["messages"]):
                found = await call(f"/talks/{asked['name']}-{number}/turn", common.text(asked))
                common.expect(found, turned + 1)

        async def started(number: int) -> Any:
            return asyncio.create_task(call("/runs/opened", number))

        if asked["do"] == "open":
            await common.all_open(asked, started)
        elif asked["do"] == "talk":
            await common.talk(asked, conversation)
        else:
            await common.measure(asked, pair=pair, chain=ten)


if __name__ == "__main__":
    common.main(worker, client)
