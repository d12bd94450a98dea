"""The examples: each does what it says, and the command in its docstring works as it is written."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agents import examples
from agents.examples import budget, refund, shop, word_count
from noesium_stream import Client, EventEnvelope, RunFailedError, Worker, open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing import Rehearsal
from tests.support.command import Folder
from tests.support.pages import ROOT
from tests.support.reading import PATIENCE_S, eventually

NAMES = sorted(path.stem for path in Path(examples.__file__).parent.glob("[!_]*.py"))


def commands() -> list[Any]:
    found = []
    for name in NAMES:
        text = importlib.import_module(f"agents.examples.{name}").__doc__ or ""
        lines = re.findall(r"^    (noesium .+)$", text, re.MULTILINE)
        assert lines, f"{name} does not say how to run it"
        found += [pytest.param(line, id=f"{name}: {line[:40]}") for line in lines if " run " in line]
    return found


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


@pytest.mark.parametrize("line", commands())
def test_the_command_of_an_example_works(line: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.env["PYTHONPATH"] = str(ROOT)
    done = folder.run(*shlex.split(line)[1:])
    assert done.returncode == 0, done.stderr
    wanted = {"refund": '"payment": "20 to ada', "word_count": '"rose": 3', "shop": '"total": 12'}
    assert any(text in done.stdout for name, text in wanted.items() if f".{name}" in line)


def test_the_package_names_every_example() -> None:
    assert sorted(re.findall(r"^- `(\w+)`", examples.__doc__ or "", re.MULTILINE)) == NAMES


async def test_a_large_refund_is_asked_about_and_paid_once_whoever_dies() -> None:
    async with Rehearsal(refund.graph) as rehearsal:
        rehearsal.crash_after("approval.requested", 1)
        run = await rehearsal.start({"customer": "ada", "amount": 120})
        await rehearsal.wait_for_crash()
        rehearsal.crash_after("effect.completed", 1)
        await run.answer(by="grace")
        result = await run.result()
        assert result["payment"].startswith("120 to ada")
        assert result["letter"] == f"Dear ada, you have been paid {result['payment']}."
        assert rehearsal.crashes == 2
        assert rehearsal.call_count("pay") == 1


async def test_a_refund_that_is_refused_is_not_paid() -> None:
    async with Rehearsal(refund.graph) as rehearsal:
        run = await rehearsal.start({"customer": "ada", "amount": 120})
        await run.answer(approved=False, by="grace")
        assert (await run.result())["letter"] == "refused by grace"
        assert rehearsal.call_count("pay") == 0


async def test_a_letter_that_fails_takes_the_payment_back() -> None:
    async with Rehearsal(refund.graph, effects={"post": [OSError("no paper")]}) as rehearsal:
        run = await rehearsal.start({"customer": "ada", "amount": 20})
        with pytest.raises(RunFailedError, match="no paper"):
            await run.result()
        (failed,) = [event.payload for event in await run.history() if event.event_type == "run.failed"]
        assert [one["name"] for one in failed["compensated"]] == ["pay"]


async def test_words_are_counted_in_parallel_and_a_crash_changes_nothing() -> None:
    async with Rehearsal(word_count.graph) as rehearsal:
        rehearsal.crash_after("kernel.node.completed", 2)
        run = await rehearsal.start({"texts": ["a rose is a rose", "is it a rose", "a"]})
        await rehearsal.wait_for_crash()
        assert (await run.result())["words"] == {"a": 4, "rose": 3, "is": 2, "it": 1}


async def test_the_shop_is_asked_for_each_price(log: EventLog, tmp_path: Path) -> None:
    async with Worker(log, [shop.SHOP, shop.AGENT], home=tmp_path), Client(log) as client:
        run = await client.start("buyer", {"items": ["bread", "oil", "bread"]})
        assert (await run.result(timeout=PATIENCE_S))["total"] == 15


async def test_a_budget_is_told_to_be_exceeded_once(log: EventLog, tmp_path: Path) -> None:
    async def told() -> list[EventEnvelope]:
        topics = await log.layout()
        topic = log.topology.events("budget")
        if topic not in topics:
            return []
        return [record.envelope async for record in log.read(topic, {}, until=await log.end(topic))]

    async def both() -> bool:
        return len(await told()) == 2

    async with Worker(log, [budget.AGENT], home=tmp_path), Client(log) as client:
        for team, cents in (("kitchen", 700), ("garden", 999), ("kitchen", 400), ("kitchen", 100)):
            await client.publish(budget.Spent(cents=cents), key=team)
        await client.publish(budget.Spent(cents=5), key="garden")
        await eventually(both)
    assert {event.payload["team"]: event.payload["cents"] for event in await told()} == {
        "kitchen": 1100,
        "garden": 1004,
    }
