"""`noesium show` of a call that no worker of its provider can take up: it says so, and why."""

from __future__ import annotations

import json
from pathlib import Path

from noesium_stream import BaseGraphicAgent, Client, Worker, capability, current_step, open_log
from tests.support.command import Folder
from tests.support.reading import eventually


class Shop(BaseGraphicAgent):
    agent_type = "shop"

    @capability(id="shop.price")
    def price(self, item: str) -> int:
        """The price of an item."""
        return len(item)


class NewShop(BaseGraphicAgent):
    agent_type = "shop"

    @capability(id="shop.price", version="2.0.0")
    def price(self, item: str, currency: str) -> int:
        """The price of an item in a currency."""
        return len(item) + len(currency)


class Buyer(BaseGraphicAgent):
    agent_type = "buyer"

    @capability
    async def buy(self, item: str) -> int:
        """Buy an item."""
        return int(await current_step().invoke("shop.price", {"item": item}, version="^1"))


async def test_a_deferred_call_is_shown_with_what_it_waits_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    folder = Folder(tmp_path, NOESIUM_HOME=str(tmp_path / "home"), NOESIUM_LOG=url)
    log = await open_log(url)
    async with Client(log) as client:
        async with Worker(log, [Shop], home=tmp_path / "old"):
            pass  # 1.0.0 stays on offer
        async with Worker(log, [NewShop, Buyer], home=tmp_path / "new"):
            run = await client.start("buyer", {"item": "oil"})

            async def deferred() -> bool:
                return bool(await client.list_runs(status="deferred"))

            await eventually(deferred)
        [called] = await client.list_runs(status="deferred")
    await log.close()
    waits = "it waits for a worker that carries shop.price 1.0.0"
    assert waits in folder.run("show", run.id).stdout
    shown = json.loads(folder.run("show", called.run_id, "--json").stdout)
    assert (shown["status"], shown["reason"]) == ("deferred", waits)
