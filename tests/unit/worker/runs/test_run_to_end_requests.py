"""What people ask of a run whose end is on its way to the log: judged by what became of that, not lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.errors import FencedError, RecordTooLargeError, RunCancelledError, RunFailedError
from noesium_stream.event.rules.effect_ledger import awaits_decision
from noesium_stream.kernel import Durability, current_step, kernel_node
from noesium_stream.kernel.decorators import kernel_compensation
from noesium_stream.kernel.step.position import this_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.effects import World, reached
from tests.support.holding import HoldingLog
from tests.support.reading import PATIENCE_S, stored

TURNS = 200
"""Of the event loop, in which a record of the inbox reaches its owner on a log in this process."""

UNDONE: list[Any] = []


@kernel_compensation()
async def pay_back(result: Any) -> None:
    UNDONE.append(result)


class Payer:
    """Its run pays, leaves that as of unknown outcome if it hangs, and comes to its end: at once the first
    time, and when `go` is set where that was lost.
    """

    def __init__(self, world: World, *, fails: bool = False) -> None:
        UNDONE.clear()
        self.world = world
        self.fails = fails
        self.ends = 0
        self.go = asyncio.Event()

    async def act(self, idempotency_key: str) -> str:
        return await self.world.act("pay", idempotency_key=idempotency_key)

    async def pay(self, state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        outcomes = this_step().journal.history.outcomes
        paying = asyncio.ensure_future(
            step.effect("pay", self.act, timeout=timedelta(milliseconds=20), compensate=pay_back)
        )
        while not paying.done() and not any(map(awaits_decision, outcomes.values())):
            await asyncio.sleep(0)
        paying.cancel()  # harmless where it is paid; else it waits for a person
        await asyncio.gather(paying, return_exceptions=True)
        return {}

    @kernel_node(deterministic=True)
    async def end(self, state: dict[str, Any]) -> dict[str, Any]:
        self.ends += 1
        if self.ends > 1:
            await self.go.wait()
        elif self.fails:
            raise ValueError("it fails by itself")
        return {"ended": True}

    def agent(self) -> Any:
        graph = StateGraph(dict).add_sequence([("pay", self.pay), ("end", self.end)]).add_edge(START, "pay")
        return agent_from_graph(
            graph, durability=Durability.EXIT
        )  # its end and what comes before it are one commit


class Stage:
    """A worker of the payer, and a run of it whose `outcome` does not get to the log until `play` says so."""

    def __init__(self, log: HoldingLog, client: Client, payer: Payer, run: Run) -> None:
        self.log = log
        self.client = client
        self.payer = payer
        self.run = run

    async def until_held(self) -> None:
        await self.log.held.wait()

    async def play(self) -> None:
        """Let what was sent reach the owner, and then the log answer."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.log.go.set()

    async def types(self) -> list[str]:
        """What the journal says of the run, once all that was sent to it was dealt with."""
        await (await self.client.start("sample", {})).result(
            timeout=PATIENCE_S
        )  # it lies behind that in the inbox
        journal = await stored(self.client.log, self.client.log.topology.journal("sample"))
        return [record.event_type for record in journal if record.key == self.run.id]

    async def letters(self) -> list[str]:
        letters = await stored(self.client.log, self.client.log.topology.dlq)
        return [letter.envelope.payload["failure_reason"] for letter in letters]


@asynccontextmanager
async def staged(
    home: Path, payer: Payer, outcome: str, error: Exception | None, *, keeps: bool = True
) -> AsyncIterator[Stage]:
    inner = await open_log("memory://?partitions=1")
    log = HoldingLog(inner, error, outcome)
    agents = [payer.agent()]
    async with (
        asyncio.timeout(PATIENCE_S),
        Worker(cast(EventLog, log), agents, home=home, keep_state=keeps),
        Client(inner) as client,
    ):
        yield Stage(log, client, payer, await client.start("sample", {}))
    await inner.close()


LOST = FencedError("told to")
REFUSED = RecordTooLargeError("told to")


@pytest.mark.parametrize("keeps", [True, False], ids=["a file", "no file"])
@pytest.mark.parametrize(
    ("outcome", "fails"),
    [("run.completed", False), ("run.compensation.started", True)],
)
async def test_a_cancel_that_came_while_an_end_was_on_its_way_counts_where_that_is_lost(
    tmp_path: Path, outcome: str, fails: bool, keeps: bool
) -> None:
    payer = Payer(World(), fails=fails)
    async with staged(tmp_path, payer, outcome, LOST, keeps=keeps) as stage:
        await stage.until_held()
        await stage.run.cancel()
        await stage.play()
        with pytest.raises(RunCancelledError):
            await stage.run.result(timeout=PATIENCE_S)
        payer.go.set()
        types = await stage.types()
    assert types.count("run.cancel.requested") == 1
    assert types[-1] == "run.cancelled"
    assert not {"run.completed", "run.failed"} & set(types)
    assert UNDONE == ["pay 1"]


@pytest.mark.parametrize("error", [None, REFUSED], ids=["reaches the log", "is refused"])
async def test_a_cancel_that_came_while_a_result_was_on_its_way_is_too_late_whatever_the_log_says(
    tmp_path: Path, error: Exception | None
) -> None:
    """A result that is refused (too large) makes the run fail, and what it did is being undone by then."""
    payer = Payer(World())
    async with staged(tmp_path, payer, "run.completed", error) as stage:
        await stage.until_held()
        await stage.run.cancel()
        await stage.play()
        if error is None:
            assert (await stage.run.result(timeout=PATIENCE_S))["ended"]
        else:
            with pytest.raises(RunFailedError, match="told to"):
                await stage.run.result(timeout=PATIENCE_S)
        payer.go.set()
        types = await stage.types()
        assert await stage.letters() == []
    assert "run.cancel.requested" not in types
    assert types[-1] == ("run.completed" if error is None else "run.failed")
    assert types.count("kernel.node.completed") == 2, "the steps are not refused with the end"
    assert ([] if error is None else ["pay 1"]) == UNDONE


async def decided(stage: Stage) -> None:
    """Say what came of the payment while the end of its run is on its way to the log."""
    await stage.until_held()
    unknown = await reached(stage.run, "effect.outcome.unknown")
    await stage.run.resolve_effect(unknown.payload["effect_id"], "result", "receipt", by="Ada")
    await stage.play()


@pytest.mark.parametrize("keeps", [True, False], ids=["a file", "no file"])
async def test_a_decision_that_came_while_a_result_was_on_its_way_counts_where_that_is_lost(
    tmp_path: Path, keeps: bool
) -> None:
    payer = Payer(World(hangs={"pay": 1}))
    async with staged(tmp_path, payer, "run.completed", LOST, keeps=keeps) as stage:
        await decided(stage)
        await reached(stage.run, "effect.resolved")
        payer.go.set()
        assert (await stage.run.result(timeout=PATIENCE_S))["ended"]
        types = await stage.types()
    assert types.count("effect.resolved") == types.count("run.completed") == 1
    assert types[-1] == "run.completed"


async def test_a_decision_that_came_while_a_result_was_on_its_way_counts_where_that_is_refused(
    tmp_path: Path,
) -> None:
    """The run fails then, and what undoes it waits for nothing else than that decision."""
    payer = Payer(World(hangs={"pay": 1}))
    async with staged(tmp_path, payer, "run.completed", REFUSED) as stage:
        await decided(stage)
        with pytest.raises(RunFailedError, match="told to"):
            await stage.run.result(timeout=PATIENCE_S)
        payer.go.set()
        types = await stage.types()
    assert types.index("run.compensation.started") < types.index("effect.resolved")
    assert types[-1] == "run.failed"
    assert UNDONE == ["receipt"]


async def test_a_decision_that_came_while_a_result_was_on_its_way_is_too_late_where_that_gets_to_the_log(
    tmp_path: Path,
) -> None:
    payer = Payer(World(hangs={"pay": 1}))
    async with staged(tmp_path, payer, "run.completed", None) as stage:
        await decided(stage)
        assert (await stage.run.result(timeout=PATIENCE_S))["ended"]
        payer.go.set()
        types = await stage.types()
        assert await stage.letters() == []
    assert "effect.resolved" not in types
    assert types[-1] == "run.completed"
    assert UNDONE == []
