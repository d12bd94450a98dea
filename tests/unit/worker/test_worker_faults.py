"""What one run, one record or one lost answer must not do to the others: hang, stop the worker, act twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client
from noesium_stream.clock import SystemClock
from noesium_stream.errors import (
    CommitUnknownError,
    LogUnavailableError,
    RecordTooLargeError,
    RunCancelledError,
    RunFailedError,
)
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.standard import Capability, RunRequested, RunSignalled
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, Outgoing
from noesium_stream.log.prepare import MAX_JOURNAL_BYTES, Prepared, header_text
from noesium_stream.worker import Worker
from noesium_stream.worker.agent_directory import Directory
from tests.support.reading import PATIENCE_S, expired
from tests.support.stores import inject

OBJECT = {"type": "object"}


def sample(*nodes: Callable[..., Any], agent_type: str = "sample") -> type[BaseGraphicAgent]:
    """An agent whose graph is these nodes one after the other."""
    graph = StateGraph(dict)
    previous = START
    for number, node in enumerate(nodes):
        graph.add_node(f"node{number}", node)
        graph.add_edge(previous, f"node{number}")
        previous = f"node{number}"
    graph.add_edge(previous, END)
    return agent_from_graph(graph, agent_type)


def provider(node: Callable[..., Any]) -> type[BaseGraphicAgent]:
    agent = sample(node, agent_type="provider")
    agent.capabilities = (Capability(id="x.y", input_schema=OBJECT, output_schema=OBJECT),)
    return agent


def quick(state: dict[str, Any]) -> dict[str, Any]:
    return {"done": True}


async def for_ever(state: dict[str, Any]) -> None:
    await current_step().signal("never")


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


@pytest.fixture
def work(log: EventLog, tmp_path: Path) -> Callable[..., Worker]:
    return lambda *agents: Worker(log, agents, home=tmp_path)


async def still_works(client: Client) -> None:
    run = await client.start("sample", {"quick": True})
    assert (await run.result(timeout=PATIENCE_S))["done"]


async def reached(run: Any, event_type: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.events():
            if event.event_type == event_type:
                return


async def types_of(run: Any) -> Counter[str]:
    return Counter([event.event_type async for event in run.events(follow=False)])


async def test_an_effect_s_result_that_is_refused_stops_no_inbox(
    log: EventLog, work: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "noesium_stream.kernel.state.typed_json.MAX_VALUE_BYTES", 2_000_000
    )  # the log has to refuse it
    called, gate = asyncio.Event(), asyncio.Event()

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        if "quick" in state:
            return {"done": True}
        await current_step().effect("big", lambda: "x" * 1_100_000)
        called.set()
        await gate.wait()  # the result is staged, and not yet committed
        return {}

    async with work(sample(node)), Client(log) as client:
        run = await client.start("sample", {})
        await asyncio.wait_for(called.wait(), PATIENCE_S)
        await run.signal("go")
        await reached(run, "run.signalled")
        gate.set()
        with pytest.raises(RunFailedError, match="RecordTooLargeError"):
            await run.result(timeout=PATIENCE_S)
        await still_works(client)


async def test_a_record_under_a_foreign_key_is_a_dead_letter(
    log: EventLog, work: Callable[..., Worker]
) -> None:
    clock = SystemClock()
    async with work(sample(quick)), Client(log) as client:
        await still_works(client)
        run_id, inbox = clock.uuid7(), log.topology.inbox("sample")
        sent = [
            Outgoing(
                event.to_envelope(
                    AgentRef("x", "x"), TraceContext(clock.token(16), clock.token(8)), partition_key=run_id
                ),
                inbox,
                0,
                "another",
            )
            for event in (
                RunRequested(run_id=run_id, agent_type="sample", input={}),
                RunSignalled(run_id=run_id, name="a", value=1),
            )
        ]
        await (await log.writer("foreign")).commit(sent)
        letters = await dead_letters(log, 2)
        assert [letter["failure_reason"] for letter in letters] == [
            f"key: is another, but the run is {run_id}"
        ] * 2
        await still_works(client)


async def test_a_corrupt_record_too_large_to_quote_is_a_dead_letter_all_the_same(
    log: EventLog, work: Callable[..., Worker]
) -> None:
    async with work(sample(quick)), Client(log) as client:
        run = await client.start("sample", {})
        await run.result(timeout=PATIENCE_S)
        [command] = [event async for event in run.events(follow=False) if event.event_type == "run.requested"]
        record = Prepared(log.topology.inbox("sample"), 0, run.id, header_text(command), (), b"g" * 900_000)
        await inject(log, record)
        [letter] = await dead_letters(log, 1)
        assert "only 500000 of the record's 900000 bytes are quoted here" in letter["validation_trace"]
        await still_works(client)


async def test_a_record_that_fits_into_the_inbox_and_not_into_the_journal_is_a_dead_letter(
    log: EventLog, work: Callable[..., Worker]
) -> None:
    clock, inbox = SystemClock(), log.topology.inbox("sample")
    async with work(sample(quick)), Client(log) as client:
        await still_works(client)
        run_id = clock.uuid7()

        def command(size: int) -> Outgoing:
            event = RunRequested(run_id=run_id, agent_type="sample", input={"text": "y" * size})
            trace = TraceContext(clock.token(16), clock.token(8))
            return Outgoing(
                event.to_envelope(AgentRef("x", "x"), trace, partition_key=run_id), inbox, 0, run_id
            )

        writer = await log.writer("foreign")
        size = MAX_JOURNAL_BYTES
        while True:
            try:
                await writer.commit([command(size)])
                break
            except RecordTooLargeError:
                size -= 4
        [letter] = await dead_letters(log, 1)
        assert "with its copy's headers it does not fit into a journal" in letter["failure_reason"]
        await still_works(client)


async def dead_letters(log: EventLog, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_S):
        async for record in log.read(log.topology.dlq, {}):
            found.append(record.unchecked.payload)
            if len(found) == count:
                return found
    raise AssertionError("the topic ended")


async def test_a_worker_starts_where_retention_has_removed_what_was_passed_over(
    log: EventLog, work: Callable[..., Worker]
) -> None:
    async with work(sample(quick)) as worker, Client(log) as client:
        run = await client.start("sample", {})
        await run.result(timeout=PATIENCE_S)
        await run.signal("too late")
        await client.start("sample", {}, idempotency_key="again")
    assert worker
    inbox = log.topology.inbox("sample")
    await log.truncate(inbox, await log.end(inbox))
    async with work(sample(quick)), Client(log) as client:
        await still_works(client)


async def test_a_run_that_waits_for_its_graph_can_be_cancelled(
    log: EventLog, work: Callable[..., Worker]
) -> None:
    async with Client(log) as client:
        async with work(sample(for_ever)):
            run = await client.start("sample", {})
            await reached(run, "kernel.node.entered")
        async with work(sample(for_ever, quick)):
            await run.cancel("not needed")
            with pytest.raises(RunCancelledError, match="not needed"):
                await run.result(timeout=PATIENCE_S)


async def test_a_cancelled_provider_does_not_cancel_itself(
    log: EventLog, work: Callable[..., Worker]
) -> None:
    async def ask(state: dict[str, Any]) -> None:
        await current_step().invoke("x.y", {})

    async with work(provider(for_ever), sample(ask)), Client(log) as client:
        run = await client.start("sample", {})
        await reached(run, "capability.invoked")
        [invoked] = [e async for e in run.events(follow=False) if e.event_type == "capability.invoked"]
        await wait_for_run(client, invoked.payload["run_id"])
        await run.cancel()
        with pytest.raises(RunCancelledError):
            await run.result(timeout=PATIENCE_S)
        child = await client.get_run(invoked.payload["run_id"])
        with pytest.raises(RunCancelledError):
            await child.result(timeout=PATIENCE_S)
        assert (await types_of(child))["run.cancel.requested"] == 1


async def wait_for_run(client: Client, run_id: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not any(
            info.run_id == run_id and info.status in ("running", "waiting")
            for info in await client.list_runs()
        ):
            await asyncio.sleep(0.01)


async def test_what_comes_for_a_run_while_it_is_being_cancelled_does_not_break_that_off(
    log: EventLog, work: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, go_on = asyncio.Event(), asyncio.Event()
    learn_inbox = Directory.learn_inbox

    async def slowly(directory: Directory, agent_type: str) -> None:
        if armed:
            ending.set()
            await go_on.wait()
        await learn_inbox(directory, agent_type)

    async def ask(state: dict[str, Any]) -> None:
        await current_step().invoke("x.y", {})

    armed = False
    monkeypatch.setattr(Directory, "learn_inbox", slowly)
    async with work(provider(for_ever), sample(ask)), Client(log) as client:
        run = await client.start("sample", {})
        await reached(run, "capability.invoked")
        armed = True
        await run.cancel()
        await asyncio.wait_for(ending.wait(), PATIENCE_S)
        await run.signal("meanwhile")
        await reached(run, "run.signalled")
        await asyncio.sleep(0)
        armed = False
        go_on.set()
        with pytest.raises(RunCancelledError):
            await run.result(timeout=PATIENCE_S)


async def test_a_command_that_has_expired_is_not_executed_when_more_came_with_it(
    log: EventLog, work: Callable[..., Worker]
) -> None:
    ran = Counter[str]()

    def node(state: dict[str, Any]) -> None:
        ran["node"] += 1

    async with Client(log) as client:
        run = await client.start("sample", {}, ttl=0.001)
        await run.signal("go")
        await expired()
        async with work(sample(node)):
            with pytest.raises(RunFailedError, match="was not executed"):
                await run.result(timeout=PATIENCE_S)
    assert not ran


async def test_what_a_node_leaves_behind_does_nothing_after_the_run_has_ended(
    log: EventLog, work: Callable[..., Worker]
) -> None:
    outside = Counter[str]()
    gate = asyncio.Event()
    left: list[asyncio.Task[None]] = []

    async def child() -> None:
        await gate.wait()
        await current_step().effect("late", lambda: outside.update(["late"]))

    async def node(state: dict[str, Any]) -> None:
        left.append(asyncio.create_task(child()))
        await current_step().signal("never")

    async with work(sample(node)), Client(log) as client:
        run = await client.start("sample", {})
        await reached(run, "kernel.node.entered")
        await run.cancel()
        with pytest.raises(RunCancelledError):
            await run.result(timeout=PATIENCE_S)
        gate.set()
        await asyncio.wait(left, timeout=PATIENCE_S)
    assert "The node node0 has ended" in str(left[0].exception())
    assert not outside


async def test_a_broker_that_is_away_for_a_moment_fails_no_delegation(
    log: EventLog, work: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = Counter[str]()
    end = log.end

    async def flaky(topic: str) -> dict[int, int]:
        if armed and topic in (log.topology.registry, log.topology.inbox("provider")) and not failures[topic]:
            failures[topic] += 1
            raise LogUnavailableError("told to")
        return await end(topic)

    async def ask(state: dict[str, Any]) -> Any:
        return await current_step().invoke("x.y", {})

    armed = False
    monkeypatch.setattr(log, "end", flaky)
    async with work(provider(quick), sample(ask)), Client(log) as client:
        armed = True
        run = await client.start("sample", {})
        assert (await run.result(timeout=PATIENCE_S))["done"]
    assert sum(failures.values()) == 2


async def test_an_error_that_utf_8_cannot_write_fails_its_run_alone(
    log: EventLog, work: Callable[..., Worker]
) -> None:
    agent = sample(lambda state: {**state, "done": True})

    def result(self: BaseGraphicAgent, state: dict[str, Any]) -> Any:
        if "name" in state:
            raise ValueError("no file \ud800")
        return state

    agent.result = result  # type: ignore[method-assign]
    async with work(agent), Client(log) as client:
        run = await client.start("sample", {"name": True})
        with pytest.raises(RunFailedError, match=r"ValueError: no file \\ud800"):
            await run.result(timeout=PATIENCE_S)
        await still_works(client)


async def test_a_worker_closes_while_the_log_is_away_and_a_run_is_being_cancelled(
    log: EventLog, work: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_writer = log.writer

    async def writer(writer_id: str, **options: Any) -> Any:
        writer = await open_writer(writer_id, **options)
        commit = writer.commit

        async def unless_away(outgoing: Any) -> Any:
            if away:
                raise LogUnavailableError("told to")
            return await commit(outgoing)

        writer.commit = unless_away  # type: ignore[method-assign]
        return writer

    async def slowly(state: dict[str, Any]) -> None:
        try:
            await current_step().signal("never")
        finally:
            await unwound.wait()

    away, unwound = False, asyncio.Event()
    monkeypatch.setattr(log, "writer", writer)
    worker = await work(sample(slowly)).__aenter__()
    async with Client(log) as client:
        run = await client.start("sample", {})
        await reached(run, "kernel.node.entered")
        await run.cancel()
        await reached(run, "run.cancel.requested")
        away = True
        unwound.set()
        await asyncio.wait_for(worker.close(), PATIENCE_S)
        away = False
        async with work(sample(slowly)):
            with pytest.raises(RunCancelledError):
                await run.result(timeout=PATIENCE_S)


async def test_a_heartbeat_of_unknown_outcome_does_not_end_the_worker(
    log: EventLog, work: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    append, beaten = log.append, asyncio.Event()

    async def unknown(envelopes: Any, **options: Any) -> Any:
        if envelopes[0].event_type == "agent.heartbeat":
            beaten.set()
            raise CommitUnknownError("told to")
        return await append(envelopes, **options)

    monkeypatch.setattr(log, "append", unknown)
    async with work(sample(quick)) as worker, Client(log) as client:
        ended = asyncio.ensure_future(worker.wait())
        await asyncio.wait_for(beaten.wait(), PATIENCE_S)
        await still_works(client)
        assert not ended.done()
        ended.cancel()
