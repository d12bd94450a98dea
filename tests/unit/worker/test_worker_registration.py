"""A worker offers what its agents can do, or does not start."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from noesium_stream import (
    BaseGraphicAgent,
    CapabilityError,
    Client,
    Worker,
    capability,
    current_step,
    open_log,
)
from noesium_stream.capabilities.registry import CapabilityRegistry


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


class Customer(BaseGraphicAgent):
    agent_type = "customer"

    @capability
    async def ask(self, item: str) -> int:
        """What an item costs at the shop."""
        return int(await current_step().invoke("shop.price", {"item": item}))


class LateShop(Shop):
    async def start(self) -> None:
        """Nobody of its worker has taken a partition by then."""
        log = self.context.log
        for _ in range(2_000):
            await asyncio.sleep(0)
        assert set((await log.end(log.topology.journal("customer"))).values()) == {0}


async def test_all_agents_of_a_worker_are_on_offer_before_one_of_them_works(tmp_path: Path) -> None:
    log = await open_log("memory://")
    client = Client(log)
    run = await client.start("customer", {"item": "bread"})
    async with Worker(log, [Customer, LateShop], home=tmp_path):
        assert await run.result() == 5
    await log.close()


async def test_a_provider_that_registers_while_it_is_looked_for_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log("memory://")
    selected = CapabilityRegistry.selected
    before = [True]

    def not_yet(registry: CapabilityRegistry, wanted: Any) -> Any:
        if before and wanted.capability_id == "shop.price":
            before.clear()
            return None
        return selected(registry, wanted)

    monkeypatch.setattr(CapabilityRegistry, "selected", not_yet)
    async with Worker(log, [Shop, Customer], home=tmp_path), Client(log) as client:
        run = await client.start("customer", {"item": "bread"})
        assert await run.result() == 5
    assert not before
    await log.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_registry_of_a_log_that_ends_with_its_process_is_not_kept(
    kind: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    log = await open_log("memory://" if kind == "memory" else f"sqlite:///{tmp_path}/log.db")
    async with Worker(log, [Customer, Shop], home=home), Client(log) as client:
        run = await client.start("customer", {"item": "bread"})
        assert await run.result() == 5
    assert (home / "registry").exists() == (kind == "sqlite")
    await log.close()
