"""Questions to people and durable timers: asked once, answered once, by whoever may, in any process."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy
from pydantic import BaseModel, Field, model_validator

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.operate.replay import verify
from noesium_stream.clock import Clock, VirtualClock, to_datetime, to_ms
from noesium_stream.errors import (
    ApprovalClosedError,
    ApprovalError,
    EventValidationError,
    RunEndedError,
    RunFailedError,
)
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.standard import ApprovalAnswered, ApprovalExpired
from noesium_stream.kernel import RunHistory, current_step, graph_ref
from noesium_stream.kernel.step import position as place
from noesium_stream.kernel.verify.verifier import ReplayTarget
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.hand_clock import HandClock
from tests.support.reading import PATIENCE_S, eventually
from tests.support.set_clock import SetClock

Node = Callable[..., Any]


class Verdict(BaseModel):
    amount: int = Field(ge=0)
    note: str = ""


@dataclass
class Choice:
    amount: int


class Row(TypedDict):
    amount: int


class State(TypedDict, total=False):
    approved: bool
    decision: str
    value: Any
    kind: str
    by: str | None
    values: list[Any]
    slept: int
    at: int


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


class Bench:
    """Graphs of nodes that run side by side, on one log, with one worker after the other."""

    def __init__(self, log: EventLog, home: Path) -> None:
        self.log = log
        self.home = home

    def worker(self, *nodes: Node, clock: Clock | None = None, retry: RetryPolicy | None = None) -> Worker:
        agent = agent_from_graph(graph_of(*nodes, retry=retry))
        return Worker(self.log, [agent], home=self.home, clock=clock)


def graph_of(*nodes: Node, retry: RetryPolicy | None = None) -> Any:
    graph = StateGraph(State)
    for number, node in enumerate(nodes):
        graph.add_node(f"node{number}", node, retry_policy=retry)
        graph.add_edge(START, f"node{number}")
        graph.add_edge(f"node{number}", END)
    return graph


@pytest.fixture
def bench(log: EventLog, tmp_path: Path) -> Bench:
    return Bench(log, tmp_path)


async def recorded(run: Any, *types: str) -> list[dict[str, Any]]:
    return [e.payload async for e in run.events(follow=False) if e.event_type in types]


async def reached(run: Any, event_type: str, count: int = 1) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for event in run.events():
            count -= event.event_type == event_type
            if not count:
                return


async def letters(log: EventLog) -> list[str]:
    await log.ensure_topics([log.topology.spec(log.topology.dlq)])
    end = await log.end(log.topology.dlq)
    return [r.envelope.payload["failure_reason"] async for r in log.read(log.topology.dlq, {}, until=end)]


def asking(question: Any = "Refund?", **options: Any) -> Node:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        answer = await current_step().interrupt(question, **options)
        value = answer.value
        kind = type(value).__name__
        shown = value if kind in ("bool", "str", "dict", "NoneType", "int") else vars(value)
        return {
            "approved": answer.approved,
            "decision": answer.decision,
            "value": shown,
            "kind": kind,
            "by": answer.answered_by,
        }

    return node


async def answered(client: Client, run: Any, approved: bool = True, **options: Any) -> dict[str, Any]:
    await reached(run, "approval.requested")
    await (run.approve if approved else run.reject)(**options)
    result: dict[str, Any] = await run.result(timeout=PATIENCE_S)
    return result


# -- answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("approved", "decision", "given", "value"),
    [
        (True, "approve", None, True),
        (False, "reject", None, False),
        (True, "approve", {"any": [1]}, {"any": [1]}),
        (False, "reject", "because", "because"),
    ],
)
async def test_an_answer_without_a_schema_carries_any_value(
    bench: Bench, approved: bool, decision: str, given: Any, value: Any
) -> None:
    async with bench.worker(asking()), Client(bench.log) as client:
        run = await client.start("sample", {})
        result = await answered(client, run, approved, value=given, by="ann")
    assert (result["approved"], result["decision"], result["value"]) == (approved, decision, value)
    assert result["by"] == "ann"


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (Verdict, "Verdict"),
        (Choice, "Choice"),
        (Row, "dict"),
        ({"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}, "dict"),
    ],
)
async def test_an_answer_comes_back_as_what_the_question_asked_for(
    bench: Bench, schema: Any, kind: str
) -> None:
    async with bench.worker(asking(schema=schema)), Client(bench.log) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        with pytest.raises(EventValidationError, match=r"value\.amount: .*\"integer\"") as refused:
            await run.approve(value={"amount": "many"})
        assert '"amount"' in (refused.value.hint or "")
        with pytest.raises(EventValidationError, match=r"value\.amount: is missing"):
            await run.approve(value={})
        with pytest.raises(EventValidationError, match="none was given, and the question wants one"):
            await run.approve()
        result = await answered(client, run, value={"amount": 3})
    assert result["kind"] == kind
    assert result["value"]["amount"] == 3


async def test_a_rejection_needs_no_value_whatever_the_schema(bench: Bench) -> None:
    async with bench.worker(asking(schema=Verdict)), Client(bench.log) as client:
        result = await answered(client, await client.start("sample", {}), approved=False)
    assert (result["approved"], result["value"]) == (False, None)


async def test_a_class_that_asks_for_more_than_its_schema_says_fails_the_node(bench: Bench) -> None:
    class Even(BaseModel):
        n: int

        @model_validator(mode="after")
        def even(self) -> Even:
            assert self.n % 2 == 0, "not even"
            return self

    async with bench.worker(asking(schema=Even)), Client(bench.log) as client:
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError, match=r"not what Even takes: value.*not even"):
            await answered(client, run, value={"n": 3})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": object()}, "The schema of a question cannot be used"),
        ({"schema": {"type": "nope"}}, "The schema of a question cannot be used"),
        ({"schema": {"$ref": "https://example.org/x"}}, "The schema of a question cannot be used"),
        ({"question": object()}, "question is of type object"),
        ({"on_timeout": "reject"}, "but not when"),
        (
            {"schema": Verdict, "timeout": timedelta(1), "on_timeout": 7},
            "which the question's schema refuses",
        ),
        ({"schema": Verdict, "timeout": timedelta(1), "on_timeout": "approve"}, "schema refuses"),
    ],
)
async def test_a_question_that_cannot_be_asked_is_one_clear_error(
    bench: Bench, options: dict[str, Any], message: str
) -> None:
    question = options.pop("question", "Refund?")
    async with bench.worker(asking(question, **options)), Client(bench.log) as client:
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError, match=message):
            await run.result(timeout=PATIENCE_S)
        assert not await recorded(run, "approval.requested")


# -- who, which, once ------------------------------------------------------------------------------------


async def test_the_first_answer_counts_and_the_second_is_refused_with_who_and_when(bench: Bench) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        first = await step.interrupt("first?")
        await step.signal("go")
        return {"by": first.answered_by}

    async with bench.worker(node), Client(bench.log) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        question = await run.approve(by="ann")
        await reached(run, "approval.answered")
        with pytest.raises(ApprovalClosedError, match=r'"first\?" was approved by ann at 20..-'):
            await run.reject(by="bob")
        # One that was sent all the same is passed over, and is no dead letter either.
        await send(client, question.answer(False, None, "bob"))
        await run.signal("go")
        assert (await run.result(timeout=PATIENCE_S))["by"] == "ann"
        assert len(await recorded(run, "approval.answered")) == 1
        with pytest.raises(RunEndedError, match="completed"):
            await run.approve()
    assert await letters(bench.log) == []


async def send(client: Client, event: ApprovalAnswered) -> None:
    envelope = event.to_envelope(
        AgentRef("someone", "someone"),
        TraceContext("1" * 32, "2" * 16),
        partition_key=event.run_id,
        metadata={"to": "sample"},
    )
    await client.log.append([envelope])


async def test_answers_that_do_not_fit_are_dead_letters_and_the_question_stays_open(bench: Bench) -> None:
    async with (
        bench.worker(asking(schema=Verdict, approvers=["ann", "carl"])),
        Client(bench.log) as client,
    ):
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        [question] = await client.approvals()
        good = question.answer(True, {"amount": 1}, "ann")
        for change, _ in (
            wrong := [
                ({"fingerprint": "0" * 64}, "payload.fingerprint: is that of another question"),
                ({"answered_by": "bob"}, "payload.answered_by: bob is not among ann, carl"),
                ({"value": {"amount": -1}}, "payload.value.amount: -1 is less than the minimum of 0"),
                ({"approval_id": "x"}, "payload.approval_id: the run asked no question x"),
            ]
        ):
            await send(client, good.model_copy(update=change))
        with pytest.raises(ApprovalError, match=r"bob may not answer .*: only ann, carl"):
            await run.approve(value={"amount": 1}, by="bob")
        assert [q.status for q in await client.approvals()] == ["open"]
        await run.approve(value={"amount": 1}, by="carl")
        assert (await run.result(timeout=PATIENCE_S))["by"] == "carl"
    assert await letters(bench.log) == [reason for _, reason in wrong]


async def test_several_open_questions_are_told_apart_and_answered_in_any_order(bench: Bench) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        answers = await asyncio.gather(*(step.interrupt(q) for q in ("a?", "b?", "a?")))
        return {"values": [answer.value for answer in answers]}

    async with bench.worker(node), Client(bench.log) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested", 3)
        with pytest.raises(ApprovalError, match="has 3 open questions") as refused:
            await run.approve()
        first, b, second = await client.approvals()
        assert [q.question for q in (first, b, second)] == ["a?", "b?", "a?"]
        assert all(q.approval_id in (refused.value.hint or "") for q in (first, b, second))
        with pytest.raises(ApprovalError, match="has asked no question nothing"):
            await run.approve("nothing")
        for question, value in ((b, "for b"), (second, "second a"), (first, "first a")):
            await run.approve(question.approval_id[:13], value=value)
            await reached(run, "approval.answered")
        assert (await run.result(timeout=PATIENCE_S))["values"] == ["first a", "for b", "second a"]


async def test_a_run_that_asks_nothing_takes_no_answer(bench: Bench) -> None:
    async def node(state: dict[str, Any]) -> None:
        await current_step().signal("go")

    async with bench.worker(node), Client(bench.log) as client:
        run = await client.start("sample", {})
        await reached(run, "kernel.node.entered")
        with pytest.raises(ApprovalError, match="asks nothing now"):
            await run.approve()


@pytest.mark.parametrize("second", ["approval.answered", "approval.expired"])
def test_what_closes_a_question_first_stays_its_answer(second: str) -> None:
    history = RunHistory()
    answer = {"run_id": "r", "approval_id": "q", "fingerprint": "f", "answered_by": "ann"}
    closing = [
        ApprovalAnswered(**answer, approved=True),
        ApprovalAnswered(**answer, approved=False)
        if second == "approval.answered"
        else ApprovalExpired(run_id="r", approval_id="q", deadline_ms=1),
    ]
    for event in closing:
        history.apply(event.to_envelope(AgentRef("a", "a"), TraceContext("1" * 32, "2" * 16)))
    assert history.closed["q"].payload["approved"] is True


async def test_a_wait_for_a_signal_is_noted_once_and_only_if_it_waits(bench: Bench) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        early = await step.signal("early")
        return {"values": [early, await step.signal("late")]}

    async with Client(bench.log) as client:
        run = await client.start("sample", {})
        await run.signal("early", 1)
        for _ in range(2):  # the second worker executes the node again
            async with bench.worker(node):
                await reached(run, "kernel.signal.awaited")
        await run.signal("late", 2)
        async with bench.worker(node):
            assert (await run.result(timeout=PATIENCE_S))["values"] == [1, 2]
    [noted] = await recorded(run, "kernel.signal.awaited")
    assert (noted["name"], noted["missing"]) == ("late", 1)


# -- restarts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [True, False])
async def test_of_two_answers_that_race_the_second_is_told_whose_counts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    raced: list[str] = []
    append = bench.log.append

    async def late(envelopes: Any) -> Any:
        if not raced:  # bob has read that the question is open, and ann is faster
            raced.append("ann")
            await run.approve(by="ann")
            if taken:
                await reached(run, "approval.answered")
        return await append(envelopes)

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        answer = await current_step().interrupt("Refund?")
        await current_step().signal("go")
        return {"by": answer.answered_by}

    async with Client(bench.log) as client:
        async with bench.worker(node) as worker:
            run = await client.start("sample", {})
            await reached(run, "approval.requested")
            if not taken:
                await worker.close()
            monkeypatch.setattr(bench.log, "append", late)
            with pytest.raises(ApprovalClosedError, match=r'"Refund\?" was approved by ann at 20..-'):
                await run.reject(by="bob")
        monkeypatch.undo()
        async with bench.worker(node):
            await run.signal("go")
            assert (await run.result(timeout=PATIENCE_S))["by"] == "ann"


async def test_an_answer_given_while_nobody_runs_is_taken_by_the_next_worker(bench: Bench) -> None:
    bodies = Counter[str]()

    async def sibling(state: dict[str, Any]) -> None:
        bodies["sibling"] += 1

    async with Client(bench.log) as client:
        async with bench.worker(asking(), sibling):
            run = await client.start("sample", {})
            await reached(run, "approval.requested")
            await reached(run, "kernel.node.completed")
        await run.approve(by="ann")
        with pytest.raises(ApprovalClosedError, match="was approved by ann") as refused:
            await run.reject(by="bob")
        assert "No worker has taken the answer up yet" in (refused.value.hint or "")
        assert [q.status for q in await client.approvals()] == ["sent"]
        async with bench.worker(asking(), sibling):
            assert (await run.result(timeout=PATIENCE_S))["by"] == "ann"
        assert await client.approvals() == []
    assert bodies == {"sibling": 1}
    assert len(await recorded(run, "approval.requested")) == 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new call waits for no other tasks of its node: there are none."""
    monkeypatch.setattr(place, "PATIENCE_S", 0.0)


@pytest.mark.usefixtures("impatient")
async def test_a_changed_question_is_found_out(bench: Bench) -> None:
    async with Client(bench.log) as client:
        async with bench.worker(asking("Delete the order?")):
            run = await client.start("sample", {})
            await reached(run, "approval.requested")
        await run.approve()
        async with bench.worker(asking("Refund the order?")):
            # The answer to the deletion is no answer to the refund, which nobody is asked about.
            with pytest.raises(RunFailedError, match='records the question "Delete the order\\?"'):
                await run.result(timeout=PATIENCE_S)
        assert len(await run.approvals()) == 1


@pytest.mark.usefixtures("impatient")
async def test_a_changed_timer_is_found_out(bench: Bench) -> None:
    async with Client(bench.log) as client:
        async with bench.worker(sleeping(timedelta(days=1))):
            run = await client.start("sample", {})
            await reached(run, "timer.started")
        async with bench.worker(sleeping(timedelta(0))):
            with pytest.raises(RunFailedError, match=r"records a timer until .* another timer instead"):
                await run.result(timeout=PATIENCE_S)


# -- time ------------------------------------------------------------------------------------------------


def sleeping(*durations: timedelta) -> Node:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        await asyncio.gather(*(step.sleep(duration) for duration in durations))
        return {"slept": len(durations)}

    return node


async def test_a_month_of_sleep_passes_in_no_time_on_a_virtual_clock(bench: Bench) -> None:
    clock = VirtualClock()
    begun = clock.now_ms()
    async with bench.worker(sleeping(timedelta(days=30)), clock=clock), Client(bench.log) as client:
        run = await client.start("sample", {})
        assert (await run.result(timeout=PATIENCE_S))["slept"] == 1
    assert clock.now_ms() - begun >= 30 * 86_400_000
    [started, fired] = await recorded(run, "timer.started", "timer.fired")
    assert started["due_ms"] == fired["due_ms"] >= begun + 30 * 86_400_000


async def test_timers_go_on_after_a_restart_and_what_has_fired_is_not_waited_for_again(bench: Bench) -> None:
    clock, gate = HandClock(), asyncio.Event()
    day = timedelta(days=1)

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        await step.sleep(day)
        gate.set()
        await step.sleep_until(step.now() + 3 * day)
        return {"at": clock.now_ms()}

    async with Client(bench.log) as client:
        async with bench.worker(node, clock=clock):
            run = await client.start("sample", {})
            await reached(run, "timer.started")
            await clock.move(day.total_seconds())
            await asyncio.wait_for(gate.wait(), PATIENCE_S)
            await reached(run, "timer.started", 2)
        [fired] = await recorded(run, "timer.fired")
        async with bench.worker(node, clock=clock):
            await eventually(lambda: clock.sleepers)
            assert (await run.info()).status == "waiting"
            await clock.move(2 * day.total_seconds())
            result = await run.result(timeout=PATIENCE_S)
    assert len(await recorded(run, "timer.started")) == len(await recorded(run, "timer.fired")) == 2
    assert result["at"] >= fired["due_ms"] + 2 * day.total_seconds() * 1000


async def test_a_sleep_is_no_longer_if_the_clock_is_set_back(bench: Bench) -> None:
    clock, node = SetClock(), sleeping(timedelta(minutes=1))
    async with bench.worker(node, clock=clock), Client(bench.log) as client:
        run = await client.start("sample", {})
        await reached(run, "timer.started")
        await clock.move(30)
        clock.ahead_s = -3_600.0
        await clock.move(30)
        assert (await run.result(timeout=PATIENCE_S))["slept"] == 1
    [started, fired] = [e async for e in run.events(follow=False) if e.event_type.startswith("timer.")]
    assert fired.payload["due_ms"] == started.payload["due_ms"] > fired.timestamp_ms
    graph = graph_of(node).compile()
    verdict = await verify(run, ReplayTarget(graph, graph_ref(graph, "sample", "1.0.0"), agent_type="sample"))
    assert verdict.difference is None


async def test_the_pause_before_a_retry_is_no_longer_if_the_clock_is_set_back(bench: Bench) -> None:
    clock, tries = SetClock(), Counter[str]()

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        tries["node"] += 1
        if tries["node"] == 1:
            raise ConnectionError("not yet")
        return {"slept": 0}

    retry = RetryPolicy(initial_interval=60.0, jitter=False)
    async with bench.worker(node, clock=clock, retry=retry), Client(bench.log) as client:
        run = await client.start("sample", {})
        await reached(run, "kernel.node.failed")
        await clock.move(30)
        clock.ahead_s = -3_600.0
        await clock.move(30)
        assert (await run.result(timeout=PATIENCE_S))["slept"] == 0
    graph = graph_of(node, retry=retry).compile()
    verdict = await verify(run, ReplayTarget(graph, graph_ref(graph, "sample", "1.0.0"), agent_type="sample"))
    assert verdict.difference is None


async def test_a_moment_to_sleep_until_is_one_of_the_wall_clock(bench: Bench) -> None:
    clock = SetClock(ahead_s=3_600.0)
    moment = to_datetime(clock.now_ms()) + timedelta(minutes=1)

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        await current_step().sleep_until(moment)
        return {"at": clock.now_ms()}

    async with bench.worker(node, clock=clock), Client(bench.log) as client:
        run = await client.start("sample", {})
        await reached(run, "timer.started")
        clock.ahead_s = 0.0
        await clock.move(60)
        await eventually(lambda: clock.sleepers)
        assert not await recorded(run, "timer.fired")
        await clock.move(3_600)
        assert (await run.result(timeout=PATIENCE_S))["at"] >= to_ms(moment)


async def test_a_deadline_that_passed_while_nobody_ran_has_passed(bench: Bench) -> None:
    clock = HandClock()
    node = asking(timeout=timedelta(hours=1), on_timeout="decline")
    async with Client(bench.log, clock=clock) as client:
        async with bench.worker(node, clock=clock):
            run = await client.start("sample", {})
            await reached(run, "approval.requested")
        clock.advance(3600)
        with pytest.raises(ApprovalClosedError, match=r"deadline of the question .* passed at 2026-"):
            await run.approve()
        async with bench.worker(node, clock=clock):
            result = await run.result(timeout=PATIENCE_S)
    assert (result["approved"], result["decision"], result["value"], result["by"]) == (
        False,
        "decline",
        False,
        None,
    )


async def test_an_answer_in_time_counts_also_where_no_worker_saw_it_before_the_deadline(bench: Bench) -> None:
    clock = HandClock()
    node = asking(timeout=timedelta(hours=1), on_timeout="decline")
    async with Client(bench.log, clock=clock) as client:
        async with bench.worker(node, clock=clock):
            run, other = [await client.start("sample", {}) for _ in range(2)]
            for each in (run, other):
                await reached(each, "approval.requested")
        await run.approve(by="ann")
        clock.advance(3601)
        async with bench.worker(node, clock=clock):
            assert (await run.result(timeout=PATIENCE_S))["by"] == "ann"
            assert (await other.result(timeout=PATIENCE_S))["decision"] == "decline"
    assert not await recorded(run, "approval.expired")


@pytest.mark.parametrize(
    ("schema", "on_timeout", "approved", "decision", "value"),
    [
        (None, "approve", True, "approve", True),
        (None, "decline", False, "decline", False),
        (None, "unknown", False, "unknown", "unknown"),
        (Verdict, "decline", False, "decline", None),
        (Verdict, {"amount": 0}, False, "timeout", {"amount": 0, "note": ""}),
        ({"enum": ["approve", "later"]}, "approve", True, "approve", "approve"),
        ({"enum": ["approve", "later"]}, "later", False, "later", "later"),
    ],
)
async def test_what_on_timeout_says_stands_in_for_the_answer(
    bench: Bench, schema: Any, on_timeout: Any, approved: bool, decision: str, value: Any
) -> None:
    node = asking(schema=schema, timeout=timedelta(days=3), on_timeout=on_timeout)
    async with bench.worker(node, clock=VirtualClock()), Client(bench.log) as client:
        run = await client.start("sample", {})
        result = await run.result(timeout=PATIENCE_S)
    assert (result["approved"], result["decision"], result["value"]) == (approved, decision, value)
    assert len(await recorded(run, "approval.expired")) == 1


async def test_without_on_timeout_a_question_that_nobody_answers_fails_its_node(bench: Bench) -> None:
    node = asking(timeout=timedelta(days=3))
    async with bench.worker(node, clock=VirtualClock()), Client(bench.log) as client:
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError, match="ApprovalExpiredError: Nobody answered a question"):
            await run.result(timeout=PATIENCE_S)
    assert len(await recorded(run, "approval.expired")) == 1


async def test_an_answer_after_the_deadline_is_passed_over(bench: Bench) -> None:
    clock = HandClock()

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        answer = await step.interrupt("Refund?", timeout=timedelta(hours=1), on_timeout="decline")
        await step.signal("go")
        return {"decision": answer.decision}

    async with bench.worker(node, clock=clock), Client(bench.log, clock=clock) as client:
        run = await client.start("sample", {})
        await reached(run, "approval.requested")
        [question] = await client.approvals()
        await clock.move(3600)
        await reached(run, "approval.expired")
        with pytest.raises(ApprovalClosedError, match=r"The deadline of the question .* passed"):
            await run.approve(by="late")
        await send(client, question.answer(True, None, "late"))
        await run.signal("go")
        assert (await run.result(timeout=PATIENCE_S))["decision"] == "decline"
        assert not await recorded(run, "approval.answered")
        assert await letters(bench.log) == []


async def test_an_answer_before_the_deadline_ends_the_wait_for_it(bench: Bench) -> None:
    clock = HandClock()
    node = asking(timeout=timedelta(hours=1), on_timeout="decline")
    async with bench.worker(node, clock=clock), Client(bench.log, clock=clock) as client:
        run = await client.start("sample", {})
        assert (await answered(client, run, by="ann"))["by"] == "ann"
        clock.advance(7200)
    assert not await recorded(run, "approval.expired")


async def test_a_moment_without_a_time_zone_is_an_error(bench: Bench) -> None:
    async def node(state: dict[str, Any]) -> None:
        await current_step().sleep_until(datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None))

    async with bench.worker(node), Client(bench.log) as client:
        run = await client.start("sample", {})
        with pytest.raises(RunFailedError, match="time zone"):
            await run.result(timeout=PATIENCE_S)
