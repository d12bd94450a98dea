"""An agent type that grows while it works: each command once, each run's messages in order, old and new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client, Run
from noesium_stream.client.views.runs import RunInfo
from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.standard import PartitionOutgrown
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.generations import generations, next_specs
from noesium_stream.log.port import EventLog
from noesium_stream.log.prepare import Prepared, header_text
from noesium_stream.log.topics import partition_of
from noesium_stream.worker import Worker, host
from tests.support.lives import Life
from tests.support.reading import PATIENCE_S, eventually
from tests.support.sample_agents import Asker, Echo
from tests.support.stores import inject


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "HEARTBEAT_S", 0.05)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    Listener.bodies.clear()
    log = await open_log("memory://?partitions=2")
    yield log
    await log.close()


class Bodies:
    """How often a run's node has begun, by what it was asked."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def clear(self) -> None:
        self.begun.clear()


def _listener() -> StateGraph[Any]:
    async def listen(state: dict[str, Any]) -> dict[str, Any]:
        heard = [await current_step().signal("word") for _ in range(state["words"])]
        Listener.bodies.begun.append(state["name"])
        return {"name": state["name"], "heard": heard}

    graph = StateGraph(dict)
    graph.add_node("listen", listen)
    graph.add_edge(START, "listen")
    graph.add_edge("listen", END)
    return graph


class Listener:
    """Waits for as many words as its input says; `bodies`: who has come to the end of it."""

    bodies = Bodies()
    agent: type[BaseGraphicAgent] = agent_from_graph(_listener(), "listener")


def worker(log: EventLog, home: Path, **options: Any) -> Worker:
    return Worker(log, [Listener.agent], home=home, **options)


async def started(run: Run) -> None:
    async def running() -> bool:
        return (await run.info()).status in ("running", "waiting")

    await eventually(running)


async def journal_of(run: Run) -> str:
    topics = {record.topic async for record in run.records(follow=False)}
    (topic,) = topics
    return topic


async def forwarded(log: EventLog, agent_type: str = "listener") -> list[str]:
    journal = log.topology.journal(agent_type)
    until = await log.end(journal)
    found = log.read(journal, {}, until=until, types=("request.forwarded",))
    return [record.envelope.payload["run_id"] async for record in found]


async def test_new_runs_go_to_the_new_generation_and_old_ones_end_where_they_are(
    log: EventLog, tmp_path: Path
) -> None:
    async with worker(log, tmp_path), Client(log) as client:
        old = await client.start("listener", {"name": "old", "words": 2})
        await started(old)
        await old.signal("word", 1)
        grown = await client.grow("listener", 5)
        assert (grown.number, grown.partitions) == (2, 5)
        new = await client.start("listener", {"name": "new", "words": 2})
        await asyncio.gather(*(run.signal("word", n) for run in (new,) for n in (1, 2)))
        await old.signal("word", 2)
        assert (await old.result(PATIENCE_S))["heard"] == [1, 2]
        assert (await new.result(PATIENCE_S))["heard"] == [1, 2]
        assert await journal_of(old) == log.topology.journal("listener")
        assert await journal_of(new) == log.topology.journal("listener", 2)
        assert {info.run_id for info in await client.list_runs()} == {old.id, new.id}
        assert {info.status for info in await client.list_runs()} == {"completed"}
    assert [one.partitions for one in await generations(log, "listener")] == [2, 5]


async def test_a_command_that_comes_again_after_the_growth_meets_the_run_of_before(
    log: EventLog, tmp_path: Path
) -> None:
    async with worker(log, tmp_path), Client(log) as client:
        asked = {"name": "ended", "words": 0}
        ended = await client.start("listener", asked, idempotency_key="ended")
        await ended.result(PATIENCE_S)
        open_ = await client.start("listener", {"name": "open", "words": 1}, idempotency_key="open")
        await started(open_)
        await client.grow("listener", 5)
        again = [
            await client.start("listener", {"name": "again", "words": 9}, idempotency_key=key)
            for key in ("ended", "open", "ended", "open")
        ]
        assert [run.id for run in again] == [ended.id, open_.id] * 2
        later = await client.start("listener", {"name": "later", "words": 0}, idempotency_key="later")
        assert await later.result(PATIENCE_S) == {"name": "later", "heard": []}
        twice = await client.start("listener", {"name": "twice", "words": 9}, idempotency_key="later")
        assert (await twice.result(PATIENCE_S))["name"] == "later"
        assert (await again[0].result(PATIENCE_S))["name"] == "ended"
        await open_.signal("word", "go")
        assert (await again[1].result(PATIENCE_S))["name"] == "open"
        assert await journal_of(open_) == log.topology.journal("listener")
        assert await journal_of(later) == log.topology.journal("listener", 2)

        async def both_handed_on() -> bool:
            return await forwarded(log) == [later.id, later.id]

        await eventually(both_handed_on)
    assert sorted(Listener.bodies.begun) == ["ended", "later", "open"]


async def test_a_deferred_command_that_comes_again_after_the_growth_is_executed_once(
    log: EventLog, tmp_path: Path
) -> None:
    """The first one is deferred in the old generation, the second one in the new one."""
    newer = agent_from_graph(_listener(), "listener", version="7.0.0")

    async def deferred(generation: int) -> int:
        journal = log.topology.journal("listener", generation)
        until = await log.end(journal)
        return len([one async for one in log.read(journal, {}, until=until, types=("request.parked",))])

    async with Client(log) as client:
        asked = {"name": "twice", "words": 1}
        async with worker(log, tmp_path):
            run = await client.start("listener", asked, idempotency_key="k", version="^7.0")
            await eventually(lambda: deferred(1))
            await client.grow("listener", 5)
            again = await client.start("listener", asked, idempotency_key="k", version="^7.0")
            assert again.id == run.id
            await eventually(lambda: deferred(2))
            await run.signal("word", 1)
        async with Worker(log, [newer], home=tmp_path):
            assert (await run.result(PATIENCE_S))["heard"] == [1]

            async def both_handed_on() -> bool:
                return (await forwarded(log)).count(run.id) >= 3

            await eventually(both_handed_on)
            last = await client.start("listener", {"name": "last", "words": 0}, idempotency_key="last")
            await last.result(PATIENCE_S)
    assert Listener.bodies.begun.count("twice") == 1
    types = [record.event_type async for record in run.records(follow=False)]
    assert (types.count("run.requested"), types.count("run.started")) == (1, 1)


async def test_what_waits_is_handed_on_with_what_was_sent_to_it_since(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with worker(log, tmp_path, concurrency=1):
            first = await client.start("listener", {"name": "first", "words": 0})
            await first.result(PATIENCE_S)
        waiting = [
            await client.start("listener", {"name": f"{n}", "words": 3}, idempotency_key=f"{n}")
            for n in range(20)
        ]
        for run in waiting:
            await run.signal("word", 1)
        await client.grow("listener", 5)
        for run in waiting:
            await run.signal("word", 2)
        async with worker(log, tmp_path, concurrency=1):
            for run in waiting:
                await run.signal("word", 3)
            for run in waiting:
                assert (await run.result(PATIENCE_S))["heard"] == [1, 2, 3]
        places = {await journal_of(run) for run in waiting}
    assert log.topology.journal("listener", 2) in places
    assert sorted(Listener.bodies.begun) == sorted(["first", *(f"{n}" for n in range(20))])


async def test_what_cannot_be_read_holds_up_no_run_of_the_next_generation(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client, worker(log, tmp_path):
        await (await client.start("listener", {"name": "first", "words": 0})).result(PATIENCE_S)
        await client.grow("listener", 5)
        run = await client.start("listener", {"name": "new", "words": 2})
        await started(run)
        await run.signal("word", 1)
        inbox = log.topology.inbox("listener")
        (sent,) = [r async for r in log.read(inbox, {}, until=await log.end(inbox), types=("run.signalled",))]
        unknown = sent.value[:2] + bytes(8) + sent.value[10:]
        prepared = Prepared(inbox, -1, run.id, header_text(sent.envelope), (), unknown)
        await inject(log, prepared, partition=sent.partition)
        await run.signal("word", 2)
        assert (await run.result(PATIENCE_S))["heard"] == [1, 2]
        journal = log.topology.journal("listener")
        found = log.read(journal, {}, until=await log.end(journal), types=("request.parked",))
        assert [record.envelope.payload["run_id"] async for record in found] == [run.id]
        assert log.decoder.decode(sent.value).payload["value"] == 1


async def test_commands_that_wait_for_a_slot_do_not_wait_for_the_old_generation(
    log: EventLog, tmp_path: Path
) -> None:
    async def block(state: dict[str, Any]) -> dict[str, Any]:
        begun.append(state["name"])
        await go_on.wait()
        return {"done": True}

    begun: list[str] = []
    go_on = asyncio.Event()
    graph = StateGraph(dict)
    graph.add_node("block", block)
    graph.add_edge(START, "block")
    agent = agent_from_graph(graph, "listener")
    async with (
        Client(log) as client,
        Worker(log, [agent], home=tmp_path, concurrency=2) as process,
    ):
        runs = [await client.start("listener", {"name": f"{n}"}, idempotency_key=f"{n}") for n in range(9)]
        await eventually(lambda: len(begun) == 2)
        owners = process.tenures()

        def all_wait() -> bool:
            return sum(owner.keeper.state.manifest.counts["waiting"] for owner in owners) == 7

        await eventually(all_wait)
        await client.grow("listener", 5)

        async def handed_on() -> bool:
            return len(await forwarded(log)) == 7

        await eventually(handed_on)
        go_on.set()
        for run in runs:
            assert (await run.result(PATIENCE_S))["done"] is True
        assert sorted(begun) == [f"{n}" for n in range(9)]


@pytest.mark.parametrize(
    ("partition", "partitions", "journal"),
    [(0, 64, None), (0, 64, 4), (1, 4, 4)],
    ids=["no journal", "another one", "another partition"],
)
async def test_news_of_a_growth_that_nobody_has_begun_is_a_dead_letter(
    log: EventLog, tmp_path: Path, partition: int, partitions: int, journal: int | None
) -> None:
    """Anyone may write to an inbox; only who may make topics makes an agent grow."""
    clock, topology = SystemClock(), log.topology
    inbox = topology.inbox("listener")
    async with worker(log, tmp_path), Client(log) as client:
        run = await client.start("listener", {"words": 0, "name": "one"})
        await run.result(timeout=PATIENCE_S)
        if journal is not None:
            _, spec = next_specs(topology, "listener", 2, journal)
            await log.ensure_topics([spec])
        news = PartitionOutgrown(
            agent_type="listener", partition=partition, generation=2, partitions=partitions
        )
        trace = TraceContext(clock.token(16), clock.token(8))
        key = next(key for key in map(str, range(50)) if partition_of(key, 2) == 0)
        envelope = news.to_envelope(AgentRef("me", "me"), trace, partition_key=key, clock=clock)
        await log.append([envelope], topic=inbox)

        async def refused() -> int:
            return (await log.end(topology.dlq))[0]

        await eventually(refused)
        after = await client.start("listener", {"words": 0, "name": "one"})
        await after.result(timeout=PATIENCE_S)
        assert await journal_of(after) == topology.journal("listener")
        assert topology.inbox("listener", 2) not in await log.layout()


async def test_who_has_not_heard_of_the_growth_is_served_all_the_same(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path), Client(log) as client, Client(log) as operator:
        early = await client.start("listener", {"name": "early", "words": 0})
        await early.result(PATIENCE_S)
        await operator.grow("listener", 5)
        late = await client.start("listener", {"name": "late", "words": 2})
        waits = asyncio.create_task(late.result(PATIENCE_S))
        await late.signal("word", 1)
        await late.signal("word", 2)
        assert (await waits)["heard"] == [1, 2]
        assert (await late.result(PATIENCE_S))["heard"] == [1, 2]
        assert await journal_of(late) == log.topology.journal("listener", 2)
        assert await forwarded(log) == [late.id] * 3


async def test_a_run_that_was_not_there_yet_is_followed_to_where_it_was_handed_on(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client:
        run = await client.start("listener", {"name": "it", "words": 0}, idempotency_key="it")
        waits = asyncio.create_task(client.run_handle("listener", run.id).result(PATIENCE_S))
        await asyncio.sleep(0)
        await client.grow("listener", 5)
        await client.grow("listener", 7)
        async with worker(log, tmp_path):
            assert (await waits)["name"] == "it"
        assert await journal_of(run) == log.topology.journal("listener", 3)
        info: RunInfo = await run.info()
        assert info.status == "completed"


async def test_a_partition_whose_inbox_has_lost_the_news_learns_of_the_growth(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client:
        async with worker(log, tmp_path):
            first = await client.start("listener", {"name": "first", "words": 0})
            await first.result(PATIENCE_S)
        await client.grow("listener", 5)
        inbox = log.topology.inbox("listener")
        await log.truncate(inbox, await log.end(inbox))
        new = await client.start("listener", {"name": "new", "words": 1})
        await new.signal("word", 1)
        async with worker(log, tmp_path):
            assert (await new.result(PATIENCE_S))["heard"] == [1]
        assert await forwarded(log) == [new.id]


async def test_the_next_owner_has_the_growth_from_the_state_of_the_last_one(
    log: EventLog, tmp_path: Path
) -> None:
    said: list[str] = []
    async with Client(log) as client:
        async with worker(log, tmp_path, keep_state=True):
            first = await client.start("listener", {"name": "first", "words": 0}, idempotency_key="first")
            await first.result(PATIENCE_S)
            await client.grow("listener", 5)
            second = await client.start("listener", {"name": "second", "words": 0}, idempotency_key="second")
            await second.result(PATIENCE_S)
        async with worker(log, tmp_path, keep_state=True, progress=said.append) as process:
            third = await client.start("listener", {"name": "third", "words": 0}, idempotency_key="third")
            await third.result(PATIENCE_S)
            again = await client.start("listener", {"name": "again", "words": 0}, idempotency_key="first")
            assert (await again.result(PATIENCE_S))["name"] == "first"

            def known() -> list[object]:
                owners = process.tenures()
                first_ones = [owner for owner in owners if owner.context.generation == 1]
                return [owner.keeper.state.manifest.successor for owner in first_ones]

            await eventually(lambda: known() == [(2, 5), (2, 5)])
    assert not [line for line in said if "from its beginning" in line], said
    assert sorted(Listener.bodies.begun) == ["first", "second", "third"]


async def test_an_agent_that_grows_is_called_and_calls_as_before(log: EventLog, tmp_path: Path) -> None:
    Echo.bodies.clear()
    async with Client(log) as client, Worker(log, [Echo, Asker], home=tmp_path):
        before = await client.start("asker", {"words": ["a"]})
        await before.result(PATIENCE_S)
        await client.grow("echo", 3)
        await client.grow("asker", 4)
        runs = [
            await client.start("asker", {"words": [f"{n}", "x"]}, idempotency_key=f"{n}") for n in range(6)
        ]
        runs += [await client.start("asker", {"words": [f"{n}", "x"]}) for n in range(6)]
        for n, run in enumerate(runs):
            assert (await run.result(PATIENCE_S))["replies"] == [f"{n % 6}", "X"]
            assert await journal_of(run) == log.topology.journal("asker", 2)
    assert Echo.bodies["echo x"] == 12


async def begun(log: EventLog) -> int:
    """How often a run has begun."""
    count = 0
    for one in await generations(log, "listener"):
        until = await log.end(one.journal)
        async for _ in log.read(one.journal, {}, until=until, types=("run.started",)):
            count += 1
    return count


@pytest.mark.parametrize("reaches_log", [False, True])
async def test_a_worker_that_dies_while_it_hands_on_hands_on_once(tmp_path: Path, reaches_log: bool) -> None:
    """Each commit of the first partition's life is one that it dies at, in turn."""
    handed_on = set()
    for dies_at in range(1, 20):
        Listener.bodies.clear()
        log = await open_log(f"memory://growth-{reaches_log}-{dies_at}?partitions=1")
        home = tmp_path / f"{dies_at}"
        async with Client(log) as client:
            life = Life(log, Listener.agent, home, dies_at=dies_at, reaches_log=reaches_log)
            asked = [("a", 0), ("b", 2), ("c", 1)]
            runs = await _asked(client, asked)
            await runs[1].signal("word", 1)

            async def all_of_it(
                client: Client = client, runs: Sequence[Run] = runs, asked: list[tuple[str, int]] = asked
            ) -> None:
                await client.grow("listener", 3)
                again = await _asked(client, [*asked, ("d", 1)])
                await runs[1].signal("word", 2)
                await runs[2].signal("word", 1)
                await again[3].signal("word", 1)
                for run in again:
                    await run.result(PATIENCE_S)

            if not await life.live(all_of_it):
                async with worker(log, home, keep_state=True):
                    await all_of_it_again(client, asked)
            heard = [(await run.result(PATIENCE_S))["heard"] for run in await _asked(client, asked)]
            assert heard[0] == []
            assert heard[1][:1] == [1]
            assert await begun(log) == 4, dies_at
            handed_on.add(len(await forwarded(log)) > 0)
        await log.close()
    assert True in handed_on


async def all_of_it_again(client: Client, asked: list[tuple[str, int]]) -> None:
    found = [one.number for one in await generations(client.log, "listener")]
    if found == [1]:
        await client.grow("listener", 3)
    for run, (_, words) in zip(await _asked(client, [*asked, ("d", 1)]), [*asked, ("d", 1)], strict=True):
        for n in range(words):
            await run.signal("word", n + 1)
        await run.result(PATIENCE_S)


async def _asked(client: Client, names: list[tuple[str, int]]) -> list[Run]:
    return [
        await client.start("listener", {"name": name, "words": words}, idempotency_key=name)
        for name, words in names
    ]
