"""A worker offers what its agents can do, or does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream import BaseGraphicAgent, CapabilityError, Client, Worker, capability, open_log


class Shop(BaseGraphicAgent):
    agent_type = "shop"

    @capability
    def price(self, item: str) -> int:
        """The price of an item."""
        return len(item)


class NewShop(BaseGraphicAgent):
    agent_type = "shop"

    @capability(id="shop.price", version="1.1.0")
    def price(self, item: str, currency: str) -> int:
        """The price of an item."""
        return len(item + currency)


async def test_a_worker_that_would_break_callers_does_not_start(tmp_path: Path) -> None:
    log = await open_log("memory://")
    async with Worker(log, [Shop], home=tmp_path) as worker, Client(log) as client:
        run = await client.start("shop", {"item": "bread"})
        assert await run.result() == 5
        assert worker is not None
    with pytest.raises(
        CapabilityError, match=r"shop\.price 1\.1\.0 breaks callers of 1\.0\.0 of shop"
    ) as caught:
        async with Worker(log, [NewShop], home=tmp_path):
            raise AssertionError("it has started")
    assert caught.value.message.endswith(": input.currency is required now.")
    await log.close()
