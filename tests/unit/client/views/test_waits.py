"""What an open run waits for, as the list of runs says: people, timers, agents, attempts, workers, turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run, RunInfo, Wait
from noesium_stream.client.views.where import parse_where
from noesium_stream.clock import VirtualClock
from noesium_stream.errors import ConfigError, LogForbiddenError
from noesium_stream.event.standard import Capability
from noesium_stream.kernel import current_step
from noesium_stream.kernel.retry import Retries
from noesium_stream.log import EventLog, open_log
from noesium_stream.log.members import this_process
from noesium_stream.worker import Worker
from tests.support.effects import reached
from tests.support.reading import PATIENCE_S
from tests.support.sample_agents import OBJECT

HOUR = timedelta(hours=1)


class State(TypedDict, total=False):
    what: str
    customer: str
    amount: int
    order: dict[str, Any]
    agent: str
    done: str


def refused() -> None:
    raise ConnectionError("busy")


def busy_at_first() -> Callable[[], None]:
    """A function that is refused once."""
    refusals = [refused]

    def ask() -> None:
        if refusals:
            refusals.pop()()

    return ask


async def act(state: State) -> dict[str, Any]:
    what, step = state["what"], current_step()
    if what == "approval":
        await step.interrupt("Pay?", approvers=["ann", "role:auditor"], timeout=HOUR)
    elif what == "quorum":
        await step.interrupt("Both?", approvers=["ann", "bob"], minimum=2)
    elif what == "timer":
        await step.sleep(HOUR)
    elif what == "signal":
        await step.signal("verdict")
    elif what == "second signal":
        await step.signal("first")
        await step.signal("first")
    elif what == "signalled":
        await step.signal("first")
        await asyncio.Event().wait()
    elif what == "call":
        await step.invoke("text.echo", {"text": "x"})
    elif what == "retry":
        await step.effect("ask model", refused, retries=Retries(initial_interval=HOUR, max_interval=HOUR))
    elif what == "retried":
        await step.effect("ask model", busy_at_first(), retries=Retries(initial_interval=timedelta(0)))
        await asyncio.Event().wait()
    elif what == "work":
        await asyncio.Event().wait()
    return {"done": what}


SAMPLE = agent_from_graph(StateGraph(State).add_node("act", act).add_edge(START, "act"), "sample")


class Hung(TypedDict, total=False):
    text: str


async def hang(state: Hung) -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}


HUNG = agent_from_graph(
    StateGraph(Hung).add_node("hang", hang).add_edge(START, "hang"),
    "echo",
    capabilities=[Capability(id="text.echo", input_schema=OBJECT, output_schema=OBJECT)],
)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    found = await open_log("memory://?partitions=1")
    yield found
    await found.close()


async def listed(client: Client, run: Run, **filters: Any) -> RunInfo:
    found = [info for info in await client.list_runs(**filters) if info.run_id == run.id]
    return found[0]


async def test_a_run_that_waits_is_shown_with_what_it_waits_for(log: EventLog, tmp_path: Path) -> None:
    works = {"work", "retried", "signalled"}
    waits = {
        "approval": "approval.requested",
        "quorum": "approval.requested",
        "timer": "timer.started",
        "signal": "kernel.signal.awaited",
        "second signal": "kernel.signal.awaited",
        "signalled": "kernel.signal.awaited",
        "call": "capability.invoked",
        "retry": "effect.failed",
        "work": "run.started",
        "retried": "effect.completed",
    }
    async with Client(log) as client, Worker(log, [SAMPLE, HUNG], home=tmp_path):
        runs = {what: await client.start("sample", {"what": what}) for what in waits}
        for what, event_type in waits.items():
            await reached(runs[what], event_type)
        await runs["quorum"].approve(by="ann")
        await reached(runs["quorum"], "approval.answered")
        for what in ("second signal", "signalled"):
            await runs[what].signal("first")
        await reached(runs["second signal"], "kernel.signal.awaited", 2)
        await reached(runs["signalled"], "run.signalled")
        infos = {what: await listed(client, run) for what, run in runs.items()}
        shown = {what: [wait.shown for wait in info.waits_for] for what, info in infos.items()}
        until = {what: [wait.until_ms for wait in info.waits_for] for what, info in infos.items()}
        assert {what: info.status for what, info in infos.items()} == {
            **dict.fromkeys(waits, "waiting"),
            **dict.fromkeys(works, "running"),
        }
        assert shown["approval"][0].startswith('ann or role:auditor to answer "Pay?" until 20')
        assert shown["quorum"] == ['bob (1 of 2 have approved) to answer "Both?"']
        assert shown["timer"][0].startswith("a timer of act until 20")
        assert shown["signal"] == ['the signal "verdict"']
        assert shown["second signal"] == ['the signal "first"']
        assert infos["signal"].waits_for[0].node == "act"
        [call] = infos["call"].waits_for
        assert shown["call"] == [f"echo to answer text.echo, run {call.id}"]
        assert shown["retry"][0].startswith("the next attempt of ask model at 20")
        assert [shown[what] for what in sorted(works)] == [[], [], []]
        assert until["quorum"] == [None]
        for what, run in runs.items():
            one = await run.info()
            assert (one.status, one.waits_for) == (infos[what].status, infos[what].waits_for)
        waiting = await client.list_runs(agent_type="sample", status="waiting")
        assert {info.run_id for info in waiting} == {
            run.id for what, run in runs.items() if what not in works
        }
        running = await client.list_runs(agent_type="sample", status="running")
        assert {info.run_id for info in running} == {runs[what].id for what in works}


async def test_a_run_waits_for_a_worker_where_nobody_has_its_partition(log: EventLog, tmp_path: Path) -> None:
    nobody = Wait("worker", "sample", "0")
    async with Client(log) as client:
        async with Worker(log, [SAMPLE], home=tmp_path):
            works = await client.start("sample", {"what": "work"})
            asks = await client.start("sample", {"what": "approval"})
            await reached(works, "run.started")
            await reached(asks, "approval.requested")
        begun = await client.start("sample", {"what": "work"})
        for run in (works, begun):
            info = await listed(client, run, status="waiting")
            assert (info.status, info.waits_for) == ("waiting", (nobody,))
        assert nobody.shown == "a worker of sample: nobody has partition 0"
        assert [wait.kind for wait in (await listed(client, asks)).waits_for] == ["approval", "worker"]


async def test_a_run_that_its_owner_has_not_begun_waits_for_its_turn(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client, Worker(log, [SAMPLE], home=tmp_path, concurrency=1):
        works = await client.start("sample", {"what": "work"})
        await reached(works, "run.started")
        next_one = await client.start("sample", {"what": "work"})
        info = await listed(client, next_one, status="waiting")
        assert (info.status, info.waits_for) == ("requested", (Wait("slot", this_process()),))
        assert info.waits_for[0].shown == f"its turn at {this_process()}"


async def test_who_may_not_see_the_group_is_told_the_rest(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forbidden(group: str) -> Any:
        raise LogForbiddenError("no")

    async with Client(log) as client:
        async with Worker(log, [SAMPLE], home=tmp_path):
            asks = await client.start("sample", {"what": "timer"})
            await reached(asks, "timer.started")
        asked = await client.start("sample", {"what": "work"})
        monkeypatch.setattr(log, "members", forbidden)
        assert [wait.kind for wait in (await listed(client, asks)).waits_for] == ["timer"]
        info = await listed(client, asked)
        assert (info.status, info.waits_for) == ("requested", ())


async def test_runs_are_selected_by_age_and_by_who_asked_what_of_whom(log: EventLog, tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Client(log, clock=clock, agent_id="ann") as ann, Client(log, clock=clock) as other:
        first = await ann.start("sample", {"customer": "acme", "amount": 7, "agent": "smith"})
        clock.advance(3600)
        second = await other.start(
            "sample", {"customer": "7", "order": {"country": "NO", "paid": True}}, fairness_key="b"
        )
        third = await other.start("shop", {"customer": "acme"})

        async def found(**filters: Any) -> list[str]:
            names = {first.id: "first", second.id: "second", third.id: "third"}
            return sorted(names[info.run_id] for info in await other.list_runs(**filters))

        async def where(*given: str) -> list[str]:
            return await found(where=parse_where(given))

        assert await found(since=timedelta(minutes=59)) == ["second", "third"]
        assert await found(since=HOUR) == ["first", "second", "third"]
        now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
        assert await found(since=now - timedelta(minutes=1)) == ["second", "third"]
        with pytest.raises(ConfigError, match="has no time zone"):
            await found(since=now.replace(tzinfo=None))
        assert await where("customer=acme") == ["first", "third"]
        assert await where("customer=acme", "agent=sample") == ["first"]
        assert await where("amount=7") == ["first"]
        assert await where("customer=7") == ["second"]
        assert await where("order.country=NO", "order.paid=true") == ["second"]
        assert await where("order={}") == await where("order.country.x=1") == await where("none=x") == []
        assert await where("input.agent=smith") == ["first"]
        assert await where("by=ann") == await where("fairness_key=ann") == ["first"]
        assert await where("fairness_key=b") == ["second"]
        assert await where("a=1", "a=2") == []
        for wrong in (("customer",), ("=x",)):
            with pytest.raises(ConfigError):
                parse_where(wrong)
        async with Worker(log, [SAMPLE], home=tmp_path):
            done = await ann.start("sample", {"what": "nothing"})
            await done.result(timeout=PATIENCE_S)
        assert [
            info.run_id for info in await ann.list_runs(where={"version": "1.0.0", "what": "nothing"})
        ] == [done.id]
