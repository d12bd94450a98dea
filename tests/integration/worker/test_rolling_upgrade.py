"""Ten worker processes are replaced by those of a new release, one by one, under load: nothing is lost,
nothing is done twice, and each run ends with the graph that it began with.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.forked import Forked
from tests.support.invariants import Asked, Call, broken, outcome_of, read_book
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S, eventually

RELEASE = """
import json
import operator
import os
from datetime import timedelta
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream import current_step

VERSION = "{version}"


class Order(TypedDict, total=False):
    n: int
    waits: bool
    did: Annotated[list[str], operator.add]


def call(words: str, idempotency_key: str) -> str:
    line = json.dumps({{"key": idempotency_key, "words": words, "process": os.getpid()}}) + "\\n"
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)
    return words


async def did(what: str, order: Order) -> dict:
    return {{"did": [await current_step().effect(what, call, f"{{what}} {{order['n']}}")]}}


async def charge(order: Order) -> dict:
    return await did("charge", order)


async def rest(order: Order) -> dict:
    if order.get("waits"):
        await current_step().signal("go")
    else:
        await current_step().sleep(timedelta(seconds=0.4))
    return {{}}


async def {last}(order: Order) -> dict:
    return await did("{last}", order)


graph = StateGraph(Order).add_sequence([charge, rest, {last}]).add_edge(START, "charge")
"""
OLD = RELEASE.format(version="1.0.0", last="ship")
NEW = RELEASE.format(version="2.0.0", last="dispatch")
LAST = {"1.0.0": "ship", "2.0.0": "dispatch"}
WORKERS = 10
AT_A_TIME = 8


@pytest.fixture(params=["sqlite", "kafka"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'events.db'}"
    kafka: KafkaServer = request.getfixturevalue("kafka")
    return str(kafka.url(request.getfixturevalue("namespace")))


class Crew:
    """The worker processes, of two releases in folders of their own."""

    def __init__(self, forked: Forked, url: str, folder: Path) -> None:
        self._forked, self._url, self._folder = forked, url, folder
        self._env = {"LEDGER": str(folder / "ledger"), "NOESIUM_PARTITIONS": "16"}
        for name, modules in {"old": {"orders": OLD}, "new": {"orders": NEW, "orders_v1": OLD}}.items():
            (folder / name).mkdir()
            for module, text in modules.items():
                (folder / name / f"{module}.py").write_text(text, encoding="utf-8")

    async def start(self, release: str, number: int) -> int:
        """Start a worker; returns when it is at work."""
        also = ["--also", "orders_v1:graph"] if release == "new" else []
        arguments = ["worker", "orders:graph", *also, "--log", self._url]
        said = self._folder / f"{release}-{number}.txt"
        env = {**self._env, "NOESIUM_HOME": str(self._folder / f"home-{number}")}
        pid = await self._forked.start(self._folder / release, said, arguments, **env)
        await eventually(lambda: said.exists() and "at work on" in said.read_text(), 60.0)
        return pid

    async def stop(self, pid: int) -> None:
        """Tell a worker to stop; it hands its work over and ends."""
        os.kill(pid, signal.SIGTERM)
        assert await self._forked.reap(pid) == 0

    def ledger(self) -> list[Call]:
        """What reached the outside."""
        lines = [json.loads(line) for line in (self._folder / "ledger").read_text().splitlines()]
        return [
            Call(one["key"], "external", one["words"], str(one["process"]), 0.0, 0.0, "done", one["words"])
            for one in lines
        ]


async def has_begun(runs: list[Run]) -> bool:
    """Whether each of these has made its first call."""
    for run in runs:
        if "effect.completed" not in [event.event_type async for event in run.events(follow=False)]:
            return False
    return True


async def ended_by(log: EventLog) -> dict[str, str]:
    """The release of each process, by its instance."""
    found: dict[str, str] = {}
    topic = log.topology.registry
    async for record in log.read(topic, {}, until=await log.end(topic), types=("agent.started",)):
        payload = record.envelope.payload
        found[payload["instance_id"]] = payload["agent_version"]
    return found


async def test_a_rolling_upgrade_of_ten_workers_loses_and_repeats_nothing(url: str, tmp_path: Path) -> None:
    log = await open_log(url)
    runs: list[Run] = []
    async with Forked() as forked, Client(log) as client:
        crew = Crew(forked, url, tmp_path)
        old = await asyncio.gather(*(crew.start("old", number) for number in range(WORKERS)))
        new = []
        runs += [await client.start("orders", {"n": n, "waits": True}) for n in range(AT_A_TIME)]
        patient = list(runs)
        await eventually(lambda: has_begun(patient), 60.0)
        for number, pid in enumerate(old):
            runs += [await client.start("orders", {"n": len(runs) + n}) for n in range(AT_A_TIME)]
            new.append(await crew.start("new", WORKERS + number))
            runs += [await client.start("orders", {"n": len(runs) + n}) for n in range(AT_A_TIME)]
            await crew.stop(pid)
        for run in patient:
            await run.signal("go")
        results = await asyncio.gather(*(run.result(timeout=PATIENCE_S) for run in runs))
        await asyncio.gather(*(crew.stop(pid) for pid in new))
    asked = [Asked(run.id, "orders", [result]) for run, result in zip(runs, results, strict=True)]
    book = await read_book(log, ["orders"])
    assert broken(book, asked, crew.ledger()) == []
    releases = await ended_by(log)
    await log.close()

    finished: Counter[tuple[str, str]] = Counter()
    for run, result in zip(runs, results, strict=True):
        began = next(e for e in book.runs[run.id] if e.event_type == "run.started").payload["agent_version"]
        assert result["did"] == [f"charge {result['n']}", f"{LAST[began]} {result['n']}"]
        end = outcome_of(book, run.id)
        assert end is not None
        finished[began, releases[end.producer.instance_id or ""]] += 1
    assert len(crew.ledger()) == 2 * len(runs)
    assert sum(finished.values()) == AT_A_TIME * (1 + 2 * WORKERS)
    # Runs of the old release went on in processes of the new one, and none of the new one in old ones.
    assert finished["1.0.0", "2.0.0"] >= len(patient)
    assert finished["2.0.0", "2.0.0"] > 0
    assert finished["2.0.0", "1.0.0"] == 0
