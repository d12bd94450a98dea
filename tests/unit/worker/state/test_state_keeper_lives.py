"""However often a worker dies, and its file with it: each command once, in fair order, each answer once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.kernel import current_step
from noesium_stream.log import EventLog, open_log
from noesium_stream.log.record import Record
from noesium_stream.worker.runs.slots import fairness_key
from noesium_stream.worker.state import state_keeper
from tests.support.lives import NEVER, Life, state_files
from tests.support.reading import PATIENCE_S, eventually


class State(TypedDict, total=False):
    asks: bool
    value: Any


async def work(state: State) -> dict[str, Any]:
    if state["asks"]:
        return {"value": await current_step().signal("go")}
    return {"value": "done"}


def agent() -> Any:
    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    return agent_from_graph(graph)


async def journal_of(log: EventLog) -> list[Record]:
    journal = log.topology.journal("sample")
    return [record async for record in log.read(journal, {}, until=await log.end(journal))]


def copies_in(records: list[Record]) -> list[tuple[int, Record]]:
    """Where each copy was received, and the copy."""
    found = [(record.header("noesium_source"), record) for record in records]
    return [(int(source.rsplit(b"/", 1)[1]), record) for source, record in found if source is not None]


def in_turns(commands: list[tuple[str, str]]) -> list[str]:
    """Run ids by turns, of commands that all wait: (fairness key, run id) in the order of the inbox."""
    lanes: dict[str, list[str]] = defaultdict(list)
    for fair, run_id in commands:
        lanes[fair].append(run_id)
    order = []
    while lanes:
        for fair in sorted(lanes):
            order.append(lanes[fair].pop(0))
            if not lanes[fair]:
                del lanes[fair]
    return order


class Traffic:
    """What a client sends, and what has to come of it."""

    def __init__(self, chance: random.Random, client: Client) -> None:
        self._chance = chance
        self._client = client
        self.runs: dict[str, Run] = {}
        self.wanted: dict[str, Any] = {}

    async def start(self, number: int) -> None:
        """A command, or one that was sent before."""
        key = f"key {self._chance.randrange(number + 1)}"
        asks = (key in self.wanted and self.wanted[key] != "done") or self._chance.random() < 0.3
        lane = self._chance.choice("aaaab")
        if key in self.wanted:
            await self._client.start("sample", {"asks": asks}, idempotency_key=key, fairness_key=lane)
            return
        run = await self._client.start("sample", {"asks": asks}, idempotency_key=key, fairness_key=lane)
        self.runs[key], self.wanted[key] = run, f"signal {number}" if asks else "done"
        if asks:
            await run.signal("go", self.wanted[key])
            if self._chance.random() < 0.5:
                await run.signal("go", "a second one, which is not asked for")


@pytest.mark.parametrize("seed", range(24))
async def test_deaths_and_lost_files_change_nothing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    log = await open_log("memory://?partitions=1")
    kind = agent()
    async with Client(log) as client:
        traffic = Traffic(chance, client)
        for number in range(chance.randrange(5, 25)):
            await traffic.start(number)
        more = iter(range(100, 110))

        async def all_ended() -> None:
            for number in more:
                await traffic.start(number)
                if chance.random() < 0.5:
                    break
            for run in traffic.runs.values():
                await run.result(timeout=PATIENCE_S)

        lived, lives = False, 0
        while not lived or next(more, None) is not None:
            monkeypatch.setattr(state_keeper, "WRITE_S", chance.choice((0.0, 0.001, 60.0)))
            dies_at = NEVER if lives > 12 else chance.randrange(1, 12)
            life = Life(
                log, kind, tmp_path, dies_at=dies_at, reaches_log=chance.random() < 0.5, concurrency=3
            )
            lived, lives = await life.live(all_ended), lives + 1
            assert all("read from its beginning" not in line for line in life.said), life.said
            if chance.random() < 0.4:
                for file in state_files(tmp_path):
                    file.unlink()
                    file.with_name(f"{file.name}-wal").unlink(missing_ok=True)
        for key, run in traffic.runs.items():
            assert (await run.result(timeout=PATIENCE_S))["value"] == traffic.wanted[key], (seed, key)
    records = await journal_of(log)
    sources = Counter(offset for offset, _ in copies_in(records))
    assert max(sources.values()) == 1, seed
    types = Counter((record.key, record.event_type) for record in records)
    for run in traffic.runs.values():
        for once in ("run.requested", "run.started", "run.completed"):
            assert types[run.id, once] == 1, (seed, once)
    await log.close()


@pytest.mark.parametrize("seed", range(12))
async def test_commands_that_wait_begin_in_turns_whatever_dies(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = await open_log("memory://?partitions=1")
    kind = agent()
    async with Client(log) as client:
        runs = []
        for _ in range(40):
            lane = chance.choice("aaaaaaaabbcde")
            runs.append(await client.start("sample", {"asks": False}, fairness_key=lane))

        async def all_ended() -> None:
            for run in runs:
                await run.result(timeout=PATIENCE_S)

        inbox = log.topology.inbox("sample")
        asked = [r async for r in log.read(inbox, {}, until=await log.end(inbox))]
        lived = False
        while not lived:
            life = Life(
                log, kind, tmp_path, dies_at=chance.randrange(2, 20), concurrency=chance.randrange(1, 5)
            )
            lived = await life.live(all_ended)
            if chance.random() < 0.5:
                for file in state_files(tmp_path):
                    file.unlink()
                    file.with_name(f"{file.name}-wal").unlink(missing_ok=True)
    begun = [r.key for _, r in copies_in(await journal_of(log)) if r.event_type in COMMANDS]
    assert begun == in_turns([(fairness_key(r.envelope), r.key) for r in asked]), seed
    await log.close()


async def test_an_answer_does_not_wait_behind_commands(tmp_path: Path) -> None:
    log = await open_log("memory://?partitions=1")
    gate = asyncio.Event()

    async def node(state: State) -> dict[str, Any]:
        if state["asks"]:
            return {"value": await current_step().signal("go")}
        await gate.wait()
        return {"value": "done"}

    graph = StateGraph(State)
    graph.add_node("work", node)
    graph.add_edge(START, "work")
    async with Client(log) as client:
        waits = await client.start("sample", {"asks": True})
        life = Life(log, agent_from_graph(graph), tmp_path, concurrency=1)
        async with life.worker:
            stuck = [await client.start("sample", {"asks": False}) for _ in range(30)]
            await waits.signal("go", 7)
            assert (await waits.result(timeout=PATIENCE_S))["value"] == 7

            async def one_works() -> bool:
                statuses = Counter([(await run.info()).status for run in stuck])
                assert statuses["requested"] >= 29, "there is one slot"
                return statuses["running"] == 1

            await eventually(one_works)
            gate.set()
            for run in stuck:
                await run.result(timeout=PATIENCE_S)
    await log.close()
