"""Memory on a real Kafka: several partitions and workers, one memory on every machine."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream import BaseGraphicAgent, Worker
from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.memory.store import MemoryStore
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S

RUNS = 12


class Said(TypedDict, total=False):
    n: int
    found: Any


class Clerk(BaseGraphicAgent):
    """Writes to a key of its own and to one that all runs share, and reads both."""

    agent_type = "clerk"

    def get_state_class(self) -> type[Said]:
        return Said

    def _build_graph(self) -> StateGraph[Any]:
        return StateGraph(Said).add_node("keep", self.keep).add_edge(START, "keep")

    async def keep(self, said: Said) -> dict[str, Any]:
        await self.memory.write(f"run.{said['n']}", said["n"], source=f"mail:{said['n'] % 2}")
        await self.memory.at("shared").write("last", said["n"])
        return {
            "found": [
                await self.memory.recall(f"run.{said['n']}"),
                await self.memory.at("shared").recall("last"),
            ]
        }


def content(store: MemoryStore) -> list[Any]:
    with store.reading() as db:
        return db.execute("SELECT id, scope, key, value, dead, gone, live FROM fact ORDER BY id").fetchall()


async def test_all_machines_remember_the_same(kafka: KafkaServer, tmp_path: Path) -> None:
    log = await open_log(f"{kafka.url('m' + secrets.token_hex(4))}&partitions=4")
    async with (
        Worker(log, [Clerk], home=tmp_path / "1"),
        Worker(log, [Clerk], home=tmp_path / "2"),
        Client(log) as client,
    ):
        runs = [await client.start("clerk", {"n": number}) for number in range(RUNS)]
        for number, run in enumerate(runs):
            assert (await run.result(timeout=PATIENCE_S))["found"] == [number, number]
        memory = client.memory("agent:clerk", home=tmp_path / "3")
        assert len(await memory.query()) == RUNS
        assert await memory.at("shared").recall("last") in range(RUNS)
        await memory.retract("mail:1")
        assert [item.value for item in await memory.query()] == [0, 10, 2, 4, 6, 8]
        stores = [memory.durable.store, MemoryStore(tmp_path / "4.db")]
        for store in stores:
            await store.catch_up(log)
        assert content(stores[0]) == content(stores[1])
        assert len(content(stores[0])) == 2 * RUNS
        memory.close()
    await log.close()
