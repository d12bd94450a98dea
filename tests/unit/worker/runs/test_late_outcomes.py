"""A call that outlasts its owner's tenure goes on, and what came of it reaches the run's next owner, once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.client.views.causal_tree import causal_tree
from noesium_stream.clock import SystemClock
from noesium_stream.errors import FencedError, RunCancelledError
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import EffectReported, SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.kernel.decorators import kernel_compensation
from noesium_stream.kernel.journal import RunIdentity
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import partition_of
from noesium_stream.worker import Worker
from noesium_stream.worker.commit.partition_writer import PartitionWriter
from noesium_stream.worker.runs.late_outcomes import RunOutcomeReports
from tests.support.effects import journal_of, reached
from tests.support.hand_clock import HandClock
from tests.support.reading import PATIENCE_S, eventually, stored

LONG = timedelta(minutes=10)
UNDONE: list[Any] = []


@kernel_compensation()
async def pay_back(receipt: Any, **_: Any) -> None:
    UNDONE.append(receipt)


class State(TypedDict, total=False):
    idle: bool
    receipt: Any


class Paying:
    """Its runs pay once, which ends when `go` is set, as `outcome` says; those that are `idle` do nothing."""

    def __init__(
        self,
        log: EventLog,
        home: Path,
        *,
        kind: SideEffectClass = SideEffectClass.EXTERNAL,
        timeout: timedelta | None = LONG,
        sync: bool = False,
        **options: Any,
    ) -> None:
        self.log, self.home = log, home
        self.paid = Counter[str]()
        self.go = threading.Event()
        self.outcome: Any = "receipt"
        self.said: list[str] = []
        self.then = END
        self._options = {"effect_class": kind, "timeout": timeout, **options}
        self._sync = sync

    def worker(self, **options: Any) -> Worker:
        graph = StateGraph(State)
        graph.add_node("pay", self.node)
        graph.add_node("wait", self.wait)
        graph.add_edge(START, "pay")
        graph.add_conditional_edges("pay", lambda state: END if state.get("idle") else self.then)
        return Worker(
            self.log, [agent_from_graph(graph)], home=self.home, progress=self.said.append, **options
        )

    async def node(self, state: State) -> State:
        if state.get("idle"):
            return {}
        call = self.pay_in_thread if self._sync else self.pay
        return {"receipt": await current_step().effect("pay", call, **self._options)}

    async def wait(self, state: State) -> State:
        await current_step().signal("go")
        return {}

    async def pay(self, idempotency_key: str) -> Any:
        self.paid[idempotency_key] += 1
        await eventually(self.go.is_set)
        return self._given()

    def pay_in_thread(self, idempotency_key: str) -> Any:
        self.paid[idempotency_key] += 1
        assert self.go.wait(60)
        return self._given()

    def _given(self) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def lost_and_taken(self, client: Client) -> None:
        """The partition is fenced, which the next commit finds, and taken again."""
        await self.log.writer(f"{self.log.topology.journal('sample')}/0")
        other = await client.start("sample", {"idle": True})
        await other.result(timeout=PATIENCE_S)
        assert any("taking it again" in line for line in self.said)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    UNDONE.clear()
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


async def types(run: Run) -> Counter[str]:
    return Counter([event.event_type async for event in run.events(follow=False)])


@pytest.mark.parametrize("sync", [False, True])
async def test_what_came_of_a_call_reaches_the_next_owner_who_waits_for_it(
    log: EventLog, tmp_path: Path, sync: bool
) -> None:
    paying = Paying(log, tmp_path, sync=sync)
    async with Client(log) as client, paying.worker():
        run = await client.start("sample", {})
        requested = await reached(run, "effect.requested")
        assert 0 <= requested.timestamp_ms + 600_000 - requested.payload["deadline_ms"] < 60_000
        await eventually(lambda: paying.paid)
        await paying.lost_and_taken(client)
        assert (await types(run))["effect.outcome.unknown"] == 0
        paying.go.set()
        assert (await run.result(timeout=PATIENCE_S))["receipt"] == "receipt"
        events, numbers = await journal_of(run)
    found = Counter(event.event_type for event in events)
    assert (found["effect.reported"], found["effect.completed"]) == (1, 1)
    assert found["effect.outcome.unknown"] == 0
    assert list(paying.paid.values()) == [1]
    assert numbers == list(range(len(events)))
    [completed] = [event for event in events if event.event_type == "effect.completed"]
    [reported] = [event for event in events if event.event_type == "effect.reported"]
    assert completed.causation_id == reported.event_id


@pytest.mark.parametrize("timeout", [LONG, None])
async def test_a_call_that_the_former_owner_never_made_is_made_by_the_next_one(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout: timedelta | None
) -> None:
    assure, asked, lost = PartitionWriter.assure, asyncio.Event(), asyncio.Event()

    async def stands_still_at_first(writer: PartitionWriter) -> None:
        if not asked.is_set():
            asked.set()
            await lost.wait()
            raise FencedError("told to")
        await assure(writer)

    monkeypatch.setattr(PartitionWriter, "assure", stands_still_at_first)
    paying = Paying(log, tmp_path, timeout=timeout)
    paying.go.set()
    async with Client(log) as client, paying.worker():
        run = await client.start("sample", {})
        await asked.wait()
        await paying.lost_and_taken(client)
        if timeout is None:
            await reached(run, "effect.outcome.unknown")
        lost.set()
        assert (await run.result(timeout=PATIENCE_S))["receipt"] == "receipt"
        found = await types(run)
        events, _ = await journal_of(run)
    assert list(paying.paid.values()) == [1]
    assert (found["effect.requested"], found["effect.reported"], found["effect.failed"]) == (2, 1, 1)
    assert found["effect.outcome.unknown"] == (timeout is None)
    [failed] = [event for event in events if event.event_type == "effect.failed"]
    assert failed.payload["message"] == "its owner gave the partition up before the call began"


async def test_partitions_that_move_take_what_outlasts_the_grace_along(tmp_path: Path) -> None:
    log = await open_log("memory://?partitions=2")
    paying = Paying(log, tmp_path / "first")
    async with Client(log) as client, paying.worker(grace=0.01):
        runs = [await client.start("sample", {}, idempotency_key=str(number)) for number in range(8)]
        assert {partition_of(run.id, 2) for run in runs} == {0, 1}
        await eventually(lambda: len(paying.paid) == 8)
        paying.home = tmp_path / "second"
        async with paying.worker() as second:
            await eventually(lambda: second.tenures())
            paying.go.set()
            for run in runs:
                assert (await run.result(timeout=PATIENCE_S))["receipt"] == "receipt"
            found = sum([await types(run) for run in runs], Counter[str]())
    assert found["effect.outcome.unknown"] == 0
    assert found["effect.completed"] == 8 > found["effect.reported"] > 0
    assert set(paying.paid.values()) == {1}
    await log.close()


async def test_a_call_without_a_timeout_is_of_unknown_outcome_until_it_reports(
    log: EventLog, tmp_path: Path
) -> None:
    paying = Paying(log, tmp_path, timeout=None)
    async with Client(log) as client, paying.worker():
        run = await client.start("sample", {})
        await eventually(lambda: paying.paid)
        assert "deadline_ms" not in (await reached(run, "effect.requested")).payload
        await paying.lost_and_taken(client)
        unknown = await reached(run, "effect.outcome.unknown")
        paying.go.set()
        assert (await run.result(timeout=PATIENCE_S))["receipt"] == "receipt"
        found = await types(run)
        [step] = causal_tree(run.id, (await journal_of(run))[0]).steps
    assert (found["effect.reported"], found["effect.completed"], found["effect.outcome.unknown"]) == (1, 1, 1)
    assert [(effect.status, effect.error) for effect in step.effects] == [("completed", None)]
    assert list(paying.paid.values()) == [1]
    assert unknown.payload["effect_id"] in paying.paid


async def test_a_report_that_comes_after_a_person_has_decided_changes_nothing(
    log: EventLog, tmp_path: Path
) -> None:
    paying = Paying(log, tmp_path, timeout=None)
    async with Client(log) as client, paying.worker():
        run = await client.start("sample", {})
        await eventually(lambda: paying.paid)
        await paying.lost_and_taken(client)
        unknown = await reached(run, "effect.outcome.unknown")
        await run.resolve_effect(unknown.payload["effect_id"], "result", "found by anna")
        assert (await run.result(timeout=PATIENCE_S))["receipt"] == "found by anna"
        paying.go.set()
        inbox = log.topology.inbox("sample")
        await eventually(lambda: _has(log, inbox, "effect.reported"))
        other = await client.start("sample", {"idle": True})
        await other.result(timeout=PATIENCE_S)
        assert (await types(run))["effect.reported"] == 0
        assert not await stored(log, log.topology.dlq)


async def _has(log: EventLog, topic: str, event_type: str) -> bool:
    return any(record.event_type == event_type for record in await stored(log, topic))


async def test_what_is_safe_to_repeat_is_repeated_at_once(log: EventLog, tmp_path: Path) -> None:
    paying = Paying(log, tmp_path, kind=SideEffectClass.IDEMPOTENT)
    async with Client(log) as client, paying.worker():
        run = await client.start("sample", {})
        await eventually(lambda: paying.paid)
        assert "deadline_ms" not in (await reached(run, "effect.requested")).payload
        await paying.lost_and_taken(client)
        await eventually(lambda: list(paying.paid.values()) == [2])
        paying.go.set()
        assert (await run.result(timeout=PATIENCE_S))["receipt"] == "receipt"
        assert (await types(run))["effect.reported"] == 0


async def test_a_failure_that_is_reported_is_the_node_s_and_is_tried_again_under_another_key(
    log: EventLog, tmp_path: Path
) -> None:
    paying = Paying(log, tmp_path)
    paying.outcome = ConnectionRefusedError("no money")
    async with Client(log) as client, paying.worker():
        run = await client.start("sample", {})
        await eventually(lambda: paying.paid)
        await paying.lost_and_taken(client)
        paying.go.set()
        failed = await reached(run, "effect.failed")
    assert failed.payload["error_class"] == "builtins:ConnectionRefusedError"
    assert failed.payload["message"] == "no money"
    assert failed.payload["node_attempt"] == 1


async def test_who_waits_for_a_report_that_never_comes_asks_a_person_at_the_deadline(
    log: EventLog, tmp_path: Path
) -> None:
    clock = HandClock()
    paying = Paying(log, tmp_path)
    async with Client(log, clock=clock) as client:
        async with paying.worker(grace=0, clock=clock):
            run = await client.start("sample", {})
            await eventually(lambda: paying.paid)
        clock.advance(590)
        async with paying.worker(clock=clock) as worker:
            await eventually(lambda: [owner.open_runs for owner in worker.tenures()] == [1])
            idle = await client.start("sample", {"idle": True})
            await idle.result(timeout=PATIENCE_S)
            assert (await types(run))["effect.outcome.unknown"] == 0
            clock.advance(11)
            unknown = await reached(run, "effect.outcome.unknown")
            await run.resolve_effect(unknown.payload["effect_id"], "result", "receipt")
            assert (await run.result(timeout=PATIENCE_S))["receipt"] == "receipt"
    assert list(paying.paid.values()) == [1]


async def test_a_run_that_is_cancelled_meanwhile_undoes_what_is_reported(
    log: EventLog, tmp_path: Path
) -> None:
    paying = Paying(log, tmp_path, compensate=pay_back)
    async with Client(log) as client, paying.worker():
        run = await client.start("sample", {})
        await eventually(lambda: paying.paid)
        await paying.lost_and_taken(client)
        await run.cancel("not wanted")
        await reached(run, "run.compensation.started")
        paying.go.set()
        with pytest.raises(RunCancelledError):
            await run.result(timeout=PATIENCE_S)
    assert UNDONE == ["receipt"]


async def test_what_a_call_says_that_ends_because_its_process_does_is_not_reported(
    log: EventLog, tmp_path: Path
) -> None:
    class Wrapping(Paying):
        async def pay(self, idempotency_key: str) -> Any:
            try:
                return await super().pay(idempotency_key)
            except asyncio.CancelledError as cancelled:
                raise ConnectionAbortedError("broken off") from cancelled

    paying = Wrapping(log, tmp_path, timeout=None)
    async with Client(log) as client:
        async with paying.worker(grace=0):
            run = await client.start("sample", {})
            await eventually(lambda: paying.paid)
        async with paying.worker():
            unknown = await reached(run, "effect.outcome.unknown")
            await run.resolve_effect(unknown.payload["effect_id"], "result", "receipt")
            assert (await run.result(timeout=PATIENCE_S))["receipt"] == "receipt"
    assert list(paying.paid.values()) == [1]


REFUSED = threading.Event()
REFUSALS: Counter[str] = Counter()


@kernel_compensation()
async def pay_back_at_second_try(receipt: Any, idempotency_key: str, **_: Any) -> None:
    REFUSALS[idempotency_key] += 1
    if len(REFUSALS) == 1:
        await eventually(REFUSED.is_set)
        raise ConnectionRefusedError("closed today")
    UNDONE.append(receipt)


async def test_what_undoes_and_has_failed_as_is_reported_is_decided_by_a_person(
    log: EventLog, tmp_path: Path
) -> None:
    REFUSED.clear()
    REFUSALS.clear()
    paying = Paying(log, tmp_path, timeout=None, compensate=pay_back_at_second_try)
    paying.go.set()
    paying.then = "wait"
    async with Client(log) as client, paying.worker():
        run = await client.start("sample", {})
        await reached(run, "kernel.node.entered", node="wait")
        await run.cancel("not wanted")
        await eventually(lambda: REFUSALS)
        await paying.lost_and_taken(client)
        await reached(run, "effect.outcome.unknown")
        REFUSED.set()
        failed = await reached(run, "effect.failed", awaits_decision=True)
        await run.resolve_effect(failed.payload["effect_id"], "retry")
        with pytest.raises(RunCancelledError):
            await run.result(timeout=PATIENCE_S)
    assert UNDONE == ["receipt"]
    assert list(REFUSALS.values()) == [1, 1]


async def test_a_report_counts_once_and_from_the_process_that_called(log: EventLog, tmp_path: Path) -> None:
    paying = Paying(log, tmp_path, timeout=None)
    async with Client(log) as client, paying.worker():
        run = await client.start("sample", {})
        requested = await reached(run, "effect.requested")
        await eventually(lambda: paying.paid)
        await paying.lost_and_taken(client)
        await reached(run, "effect.outcome.unknown")
        theirs = requested.producer

        async def report(producer: AgentRef, result: str, **other: str) -> None:
            await log.append([_report(requested, producer, result, **other)])

        await report(replace(theirs, instance_id="somebody-else"), "forged")
        await report(theirs, "of nothing", effect_id="none")
        await report(theirs, "of an earlier call", intent_id="another")
        await eventually(lambda: _letters(log, 2))
        await report(theirs, "first")
        await report(theirs, "second")
        assert (await run.result(timeout=PATIENCE_S))["receipt"] == "first"
        with pytest.raises(Exception, match="ended"):
            await run.resolve_effect(requested.payload["effect_id"], "fail")
        found = await types(run)
        assert (found["effect.reported"], found["effect.completed"]) == (1, 1)
        assert await _letters(log, 2)
        paying.go.set()


async def test_an_outcome_that_is_lost_on_its_way_is_reported_by_the_process_that_called(
    log: EventLog, tmp_path: Path
) -> None:
    paying = Paying(log, tmp_path)
    paying.go.set()
    async with Client(log) as client, paying.worker():
        run = await client.start("sample", {})
        await run.result(timeout=PATIENCE_S)
        events = {event.event_type: event for event in [one async for one in run.events()]}
    requested, outcome = events["effect.requested"], events["effect.completed"]
    sent: list[EventEnvelope] = []

    def recovered_by(agent: AgentRef) -> None:
        owner = SimpleNamespace(
            identity=RunIdentity(
                run_id=run.id,
                agent=agent,
                trace=TraceContext("0" * 32, "0" * 16),
                correlation_id=run.id,
                started_event_id=requested.event_id,
            ),
            clock=SystemClock(),
            history=SimpleNamespace(requested={requested.payload["effect_id"]: requested}),
            command=SimpleNamespace(metadata={}),
        )
        reports = SimpleNamespace(send=lambda event, inbox: sent.append(event))
        RunOutcomeReports(reports, owner, "inbox").recover(outcome)  # type: ignore[arg-type]

    recovered_by(requested.producer)
    assert [(one.event_type, one.producer) for one in sent] == [("effect.reported", requested.producer)]
    recovered_by(replace(requested.producer, instance_id="the next owner"))
    assert len(sent) == 1


async def _letters(log: EventLog, count: int) -> bool:
    return len(await stored(log, log.topology.dlq)) == count


def _report(requested: EventEnvelope, producer: AgentRef, result: str, **other: str) -> EventEnvelope:
    payload = requested.payload
    said = {
        "run_id": payload["run_id"],
        "effect_id": payload["effect_id"],
        "intent_id": requested.event_id,
        **other,
    }
    event = EffectReported(**said, outcome="completed", duration_ms=1, result=result)  # type: ignore[arg-type]
    return event.to_envelope(
        producer,
        TraceContext("0" * 32, "0" * 16),
        partition_key=payload["run_id"],
        metadata={"to": "sample"},
    )
