"""Runs that only wait are forgotten after a while, and nobody can tell: they live on the log."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream.client import Client, Run
from noesium_stream.errors import CommitUnknownError, FencedError, RunCancelledError, RunFailedError
from noesium_stream.event.standard import Capability, SideEffectClass
from noesium_stream.kernel import current_step, kernel_compensation, kernel_node
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing import agent_of
from noesium_stream.worker import PartitionOwner, Worker, parking
from noesium_stream.worker.open_runs import OpenRuns
from noesium_stream.worker.parking import CROWDED_IDLE_S, IDLE_S
from noesium_stream.worker.rest import Rest
from tests.support.failing import FailingLog
from tests.support.hand_clock import HandClock
from tests.support.reading import eventually

Node = Callable[..., Any]
DAY = timedelta(days=1)


class State(TypedDict, total=False):
    value: Any
    other: Any


class Host:
    """A worker of one agent on one log, whose clock is moved by hand."""

    def __init__(self, log: EventLog, home: Path) -> None:
        self.log = log
        self.home = home
        self.clock = HandClock()
        self.bodies: Counter[str] = Counter()

    def worker(self, *nodes: Node) -> Worker:
        graph = StateGraph(State)
        for number, node in enumerate(nodes):
            graph.add_node(f"node{number}", node)
            graph.add_edge(START, f"node{number}")
            graph.add_edge(f"node{number}", END)
        self.current = Worker(self.log, [(agent_of(graph), None)], home=self.home, clock=self.clock)
        return self.current

    @property
    def owners(self) -> list[PartitionOwner]:
        return list(self.current._hosts[0]._owners.values())

    @property
    def parked(self) -> int:
        return sum(owner.parked_runs for owner in self.owners)

    def sweep(self) -> None:
        for owner in self.owners:
            owner.park_idle()

    async def idle_for(self, seconds: float = IDLE_S) -> None:
        """Let everything come to rest, and then so much time pass."""
        for _ in range(50):
            await asyncio.sleep(0)
        self.sweep()
        self.clock.advance(seconds)
        self.sweep()

    async def parks(self, count: int = 1) -> None:
        async def rested() -> bool:
            await self.idle_for()
            return self.parked == count

        await eventually(rested)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    log = await open_log("memory://")
    yield Host(log, tmp_path)
    await log.close()


async def reached(run: Run, event_type: str, count: int = 1) -> None:
    async with asyncio.timeout(10):
        async for event in run.events():
            count -= event.event_type == event_type
            if not count:
                return


async def types(run: Run) -> list[str]:
    return [event.event_type async for event in run.events(follow=False)]


async def asking(state: dict[str, Any]) -> dict[str, Any]:
    return {"value": (await current_step().interrupt("Go on?")).answered_by}


async def test_an_answer_brings_a_parked_run_back_and_nothing_was_written_for_parking_it(host: Host) -> None:
    async def sibling(state: dict[str, Any]) -> None:
        host.bodies["sibling"] += 1

    async with host.worker(asking, sibling), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        await reached(run, "kernel.node.completed")
        before = await types(run)
        await host.parks()
        assert [len(owner._runs) for owner in host.owners] == [0] * len(host.owners)
        assert sum(owner.open_runs for owner in host.owners) == 1
        assert await types(run) == before
        await run.approve(by="ann")
        assert (await run.result(timeout=10))["value"] == "ann"
        after = await types(run)
    assert host.bodies == {"sibling": 1}
    assert after[: len(before) + 1] == [*before, "approval.answered"]
    assert after.count("kernel.node.entered") == 2


async def test_a_run_is_not_parked_before_its_time(host: Host) -> None:
    async with host.worker(asking), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        await host.idle_for(IDLE_S - 1)
        assert host.parked == 0
        await host.idle_for(1)
        assert host.parked == 1


async def test_a_crowd_that_waits_for_people_is_parked_at_once_but_for_those_that_came_last(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "CROWD", 3)
    async with host.worker(asking), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(80)]
        for run in runs:
            await reached(run, "approval.requested")
        await eventually(lambda: all(len(owner._runs) <= 3 for owner in host.owners))
        assert sum(len(owner._runs) for owner in host.owners) == len(runs) - host.parked
        order = [run.id for run in runs]
        for owner in host.owners:
            began = [run_id for run_id in order if run_id in owner._runs or run_id in owner._parking]  # type: ignore[operator]
            assert set(began[-3:]) == set(owner._runs)
        assert host.clock.monotonic() == HandClock().monotonic()  # no time has passed
        for run in runs:
            await run.approve(by="ann")
        for run in runs:
            assert (await run.result(timeout=10))["value"] == "ann"
            assert (await types(run)).count("approval.answered") == 1


async def test_what_will_go_on_soon_is_parked_only_after_a_while(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nap(state: dict[str, Any]) -> None:
        await current_step().sleep(timedelta(seconds=CROWDED_IDLE_S - 1))
        await current_step().sleep(timedelta(seconds=10 * CROWDED_IDLE_S))

    look_at_once(monkeypatch, 1)
    async with host.worker(nap), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(40)]
        for run in runs:
            await reached(run, "timer.started")
        await host.idle_for(0)
        assert host.parked == 0
        host.clock.advance(CROWDED_IDLE_S - 1)
        for run in runs:
            await reached(run, "timer.started", 2)
        await host.idle_for(CROWDED_IDLE_S - 1)
        assert host.parked == 0  # the first wait was a short one
        host.clock.advance(1)
        host.sweep()
        assert all(len(owner._runs) <= 1 for owner in host.owners)
        host.clock.advance(10 * CROWDED_IDLE_S)
        for run in runs:
            await run.result(timeout=10)


async def test_a_run_that_waits_for_another_agent_is_not_parked_at_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": await current_step().invoke("x.y", {})}

    graph = StateGraph(State)
    graph.add_node("ask", asking)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    provider = agent_of(graph, "provider")
    schema = {"type": "object"}
    provider.capabilities = (Capability(id="x.y", input_schema=schema, output_schema=schema),)
    look_at_once(monkeypatch, 1)
    async with (
        Worker(host.log, [(provider, None)], home=host.home, clock=host.clock) as other,
        host.worker(call),
        Client(host.log) as client,
    ):
        runs = [await client.start("sample", {}) for _ in range(40)]
        for run in runs:
            await reached(run, "capability.invoked")

        async def all_asked() -> bool:
            return len(await client.approvals()) == len(runs)

        await eventually(all_asked)
        callers, host.current = host.current, other
        await eventually(lambda: host.parked > 0 and all(len(owner._runs) <= 1 for owner in host.owners))
        host.current = callers
        assert host.parked == 0
        for question in await client.approvals():
            await (await client.run(question.run_id)).approve(by="ann")
        for run in runs:
            assert (await run.result(timeout=10))["value"]["value"] == "ann"


async def test_a_run_that_is_woken_again_and_again_is_read_back_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": [await current_step().signal("n") for _ in range(7)]}

    look_at_once(monkeypatch, 0)
    read: Counter[str] = Counter()
    bring_back = OpenRuns.bring_back

    def counted(owner: OpenRuns, run_id: str, records: Any) -> Any:
        read[run_id] += 1
        return bring_back(owner, run_id, records)

    monkeypatch.setattr(OpenRuns, "bring_back", counted)
    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        await eventually(lambda: host.parked == 1)
        for number in range(4):
            host.clock.advance(1)
            await run.signal("n", number)
            await reached(run, "run.signalled", number + 1)
            await host.idle_for(CROWDED_IDLE_S - 2)
            assert host.parked == 0
        assert read == {run.id: 1}
        await host.idle_for(1)  # and a long wait is one
        await host.idle_for(1)
        assert host.parked == 1
        for number in (4, 5):
            host.clock.advance(CROWDED_IDLE_S)
            await run.signal("n", number)
            await reached(run, "run.signalled", number + 1)
            await eventually(lambda: host.parked == 1)  # so that it is parked at once again
        host.clock.advance(1)
        await run.signal("n", 6)
        assert (await run.result(timeout=10))["value"] == list(range(7))
        assert read == {run.id: 4}


async def test_answers_that_come_while_a_crowd_is_being_parked_wake_their_runs(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": [await current_step().signal("n") for _ in range(8)]}

    look_at_once(monkeypatch, 0)
    async with host.worker(node), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(12)]
        for number in range(8):
            for turns, run in enumerate(runs):
                # Each at another moment of being parked, or of being read back for the signal before.
                for _ in range(turns):
                    await asyncio.sleep(0)
                await run.signal("n", number)
            host.clock.advance(2 * CROWDED_IDLE_S)  # no wait is a short one
        for run in runs:
            assert (await run.result(timeout=20))["value"] == list(range(8))
    assert host.parked == 0


async def test_a_run_that_was_brought_back_for_a_record_stays_until_it_has_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "CROWD", 0)
    async with host.worker(asking), Client(host.log) as client:
        run = await client.start("sample", {})
        await eventually(lambda: host.parked == 1)
        [owner] = [owner for owner in host.owners if owner.parked_runs]
        lot = owner._parking
        assert lot is not None
        with lot.staying([run.id]):
            host.clock.advance(CROWDED_IDLE_S)
            await lot.bring_back([run.id])
            await eventually(lambda: owner._runs[run.id].only_waits())
            for _ in range(3):
                await host.idle_for(10 * IDLE_S)
                lot._park_crowd()
            assert host.parked == 0
        await host.parks()
        await run.approve(by="ann")
        assert (await run.result(timeout=10))["value"] == "ann"


async def test_a_run_in_which_something_begins_after_it_was_seen_to_wait_is_judged_anew(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "CROWD", 0)
    monkeypatch.setattr(parking, "SETTLE_S", 3_600.0)  # looks are the test's
    async with host.worker(asking), Client(host.log) as client:
        run = await client.start("sample", {})
        await eventually(lambda: any(s.only_waits() for owner in host.owners for s in owner._runs.values()))
        [owner] = [owner for owner in host.owners if owner._runs]
        lot, session = owner._parking, owner._runs[run.id]
        assert lot is not None
        other = object()
        session.activity.enter(other, None)  # a node of the same superstep, whose task begins only now
        lot._park_crowd()
        assert host.parked == 0
        session.activity.leave(other)
        lot.waits(session, None)
        session.wake()  # something has come for it, and changes nothing
        lot._park_crowd()
        assert host.parked == 0
        await eventually(lambda: Rest().proves(session))
        session.brief = True
        lot.waits(session, None)
        lot._park_crowd()
        assert host.parked == 0
        session.brief = False
        lot.waits(session, None)
        lot._park_crowd()
        assert host.parked == 1
        await run.approve(by="ann")
        assert (await run.result(timeout=10))["value"] == "ann"


def look_at_once(monkeypatch: pytest.MonkeyPatch, crowd: int) -> None:
    """Let more waiting runs than these of a partition be parked within a few turns of the event loop."""
    monkeypatch.setattr(parking, "CROWD", crowd)
    monkeypatch.setattr(parking, "SETTLE_S", 0.0)
    monkeypatch.setattr(parking, "_SETTLING_TURNS", 3)


async def test_signals_and_questions_wake_it_again_and_again(host: Host) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        host.bodies["node"] += 1
        first = await step.signal("go")
        answer = await step.interrupt("Go on?")
        second = await step.signal("go")
        return {"value": [first, answer.value, second]}

    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        await host.parks()
        await run.signal("go", 1)
        await reached(run, "approval.requested")
        await host.parks()
        await run.approve(value=2)
        await reached(run, "approval.answered")
        await host.parks()
        await run.signal("go", 3)
        assert (await run.result(timeout=10))["value"] == [1, 2, 3]
    assert host.bodies["node"] == 4


async def test_a_deadline_brings_a_parked_run_back(host: Host) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        await step.sleep(DAY)
        answer = await step.interrupt("Go on?", timeout=DAY, on_timeout="decline")
        return {"value": answer.decision}

    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "timer.started")
        await host.parks()
        host.clock.advance(DAY.total_seconds())
        await reached(run, "approval.requested")
        await host.parks()
        host.clock.advance(DAY.total_seconds())
        assert (await run.result(timeout=10))["value"] == "decline"
        found = await types(run)
    assert found.count("timer.fired") == found.count("approval.expired") == 1


async def test_cancel_ends_a_parked_run_as_a_loaded_one(host: Host) -> None:
    async with host.worker(asking), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        await host.parks()
        await run.cancel("not needed")
        with pytest.raises(RunCancelledError, match="not needed"):
            await run.result(timeout=10)
        found = await types(run)
    assert found[-2:] == ["run.cancel.requested", "run.cancelled"]


async def test_a_repeated_command_for_a_parked_run_is_no_second_run(host: Host) -> None:
    async with host.worker(asking), Client(host.log) as client:
        run = await client.start("sample", {}, idempotency_key="once")
        await reached(run, "approval.requested")
        await host.parks()
        await client.start("sample", {}, idempotency_key="once")
        await run.approve(by="ann")
        assert (await run.result(timeout=10))["value"] == "ann"
        assert (await types(run)).count("run.started") == 1


async def test_a_caller_that_waits_for_a_parked_provider_gets_its_answer(host: Host) -> None:
    async def call(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": await current_step().invoke("x.y", {})}

    graph = StateGraph(State)
    graph.add_node("ask", asking)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    provider = agent_of(graph, "provider")
    schema = {"type": "object"}
    provider.capabilities = (Capability(id="x.y", input_schema=schema, output_schema=schema),)
    async with (
        Worker(host.log, [(provider, None)], home=host.home, clock=host.clock) as other,
        host.worker(call),
        Client(host.log) as client,
    ):
        run = await client.start("sample", {})
        await reached(run, "capability.invoked")
        await eventually(client.approvals)
        await host.parks()
        [question] = await client.approvals()
        caller, host.current = host.current, other
        await host.parks()
        host.current = caller
        assert host.parked == 1
        await (await client.run(question.run_id)).approve(by="ann")
        assert (await run.result(timeout=10))["value"]["value"] == "ann"


async def test_what_works_beside_a_wait_keeps_the_run_loaded(host: Host) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def outside() -> str:
        begun.set()
        await gate.wait()
        return "done"

    async def effect(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        done, _ = await asyncio.gather(
            step.effect("outside", outside, effect_class=SideEffectClass.EXTERNAL), step.signal("go")
        )
        return {"other": done}

    async def busy(state: dict[str, Any]) -> None:
        await current_step().effect("inside", lambda: None)  # after it nothing is left to be written
        await gate.wait()

    for nodes in ((asking, effect), (asking, busy)):
        async with host.worker(*nodes), Client(host.log) as client:
            run = await client.start("sample", {})
            await reached(run, "approval.requested")
            if effect in nodes:
                await asyncio.wait_for(begun.wait(), 10)
            else:
                await reached(run, "effect.completed")
            for _ in range(3):
                await host.idle_for(10 * IDLE_S)
            assert host.parked == 0
            gate.set()
            await host.parks()
            await run.signal("go")
            await run.approve(by="ann")
            assert (await run.result(timeout=10))["value"] == "ann"
            gate.clear()


async def test_records_that_come_while_a_run_is_parked_or_read_back_are_not_lost(host: Host) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        return {"value": [await step.signal("n") for _ in range(30)]}

    async with host.worker(node), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(20)]
        for run in runs:
            await reached(run, "kernel.node.entered")
        for number in range(30):
            # Time passes, and sweeps come, at every moment between a record and its delivery.
            sending = asyncio.gather(*(run.signal("n", number) for run in runs))
            while not sending.done():
                await asyncio.sleep(0)
                host.sweep()
                host.clock.advance(IDLE_S)
            await sending
            if number % 10 == 0:
                await host.parks(20)
        for run in runs:
            assert (await run.result(timeout=20))["value"] == list(range(30))


async def test_a_run_is_not_parked_while_a_record_for_it_is_on_its_way(tmp_path: Path) -> None:
    inner = await open_log("memory://")
    failing = FailingLog(inner, lambda *_: False, RuntimeError("never"), reaches_log=False)
    host = Host(failing, tmp_path)  # type: ignore[arg-type]
    async with host.worker(asking), Client(inner) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        failing.gate.clear()
        await run.approve(by="ann")
        await eventually(lambda: any(s.held for owner in host.owners for s in owner._runs.values()))
        for _ in range(3):
            await host.idle_for(10 * IDLE_S)
        assert host.parked == 0
        failing.gate.set()
        assert (await run.result(timeout=10))["value"] == "ann"
    await inner.close()


async def test_a_run_that_was_parked_when_the_partition_was_lost_goes_on(tmp_path: Path) -> None:
    inner = await open_log("memory://")
    lost = CommitUnknownError("told to")
    wanted = False
    failing = FailingLog(inner, lambda *_: wanted, lost, reaches_log=True)
    host = Host(failing, tmp_path)  # type: ignore[arg-type]
    async with host.worker(asking), Client(inner) as client:
        runs = [await client.start("sample", {}) for _ in range(3)]
        for run in runs:
            await reached(run, "approval.requested")
        await host.parks(3)
        wanted = True
        for run in runs:
            await run.approve(by="ann")
        await eventually(lambda: failing.failed)
        host.clock.advance(5)
        for run in runs:
            with_clock = asyncio.ensure_future(run.result(timeout=10))
            while not with_clock.done():
                await asyncio.sleep(0.01)
                host.clock.advance(1)
            assert (await with_clock)["value"] == "ann"
            assert (await types(run)).count("approval.answered") == 1
    await inner.close()


async def test_parked_runs_go_on_with_the_next_worker(host: Host) -> None:
    async with Client(host.log) as client:
        async with host.worker(asking):
            run = await client.start("sample", {})
            await reached(run, "approval.requested")
            await host.parks()
        await run.approve(by="ann")
        async with host.worker(asking):
            assert (await run.result(timeout=10))["value"] == "ann"


async def test_a_node_with_a_timeout_runs_out_of_time_however_many_wait(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    @kernel_node(timeout=timedelta(seconds=0.3))
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"value": await current_step().signal("never")}

    monkeypatch.setattr(parking, "CROWD", 0)
    async with host.worker(node), Client(host.log) as client:
        runs = [await client.start("sample", {}) for _ in range(3)]
        for run in runs:
            with pytest.raises(RunFailedError, match="NodeTimedOutError"):
                await run.result(timeout=10)


async def booked() -> int:
    return 7


async def undo_asks(state: dict[str, Any]) -> None:
    await current_step().interrupt("Undo it?")


def undoing() -> Any:
    graph = StateGraph(State)
    graph.add_node("ask", undo_asks)
    graph.add_edge(START, "ask")
    return graph.compile()


UNDOING = kernel_compensation(timeout=timedelta(seconds=0.3))(undoing())


async def test_a_graph_that_undoes_runs_out_of_its_time_while_it_waits(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def node(state: dict[str, Any]) -> None:
        await current_step().effect("book", booked, compensate=f"{__name__}:UNDOING")
        raise LookupError("told to fail")

    monkeypatch.setattr(parking, "CROWD", 0)
    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "effect.failed")
        [left] = await run.open_effects()
        assert left.name == "undo book"


async def test_an_answer_is_not_lost_with_the_partition_while_its_run_is_read_back(host: Host) -> None:
    graph = StateGraph(State).add_node(asking).add_edge(START, "asking")
    agents: list[Any] = [(agent_of(graph), None)]
    said: list[str] = []
    host.current = Worker(
        host.log, agents, home=host.home, clock=host.clock, keeps_state=True, progress=said.append
    )
    async with host.current, Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        await host.parks()
        [owner] = [owner for owner in host.owners if owner.parked_runs]
        reading = asyncio.Event()

        async def for_ever(run_ids: Any) -> Any:
            reading.set()
            await asyncio.Event().wait()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(owner._open, "read_runs", for_ever)
            await run.approve(by="ann")
            await reading.wait()
            owner.recover(FencedError("lost"))
            await eventually(lambda: owner._parking is None)

        def taken_again() -> bool:
            host.clock.advance(0.1)
            return any("taking it again" in line for line in said)

        await eventually(taken_again)
        assert (await run.result(timeout=5))["value"] == "ann"
