"""Waiting for people, signals and time, on the log: for days, and across processes.

A question is identified by its content, a timer by its length or its end, both with the number of equal ones
before them in the step. The first execution records it; every later one waits for the same answer, until the
same moment. The recorded question counts: its schema, its approvers and its deadline are those of the first
execution.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from noesium_stream.clock import to_ms, to_rfc3339
from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import ApprovalExpiredError, KernelError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.payload.value import copied, to_json
from noesium_stream.event.standard import (
    ApprovalExpired,
    ApprovalRequested,
    SignalAwaited,
    TimerFired,
    TimerStarted,
)
from noesium_stream.event.standard.human import MAX_MINIMUM
from noesium_stream.event.trust.trusted_key import ROLE
from noesium_stream.kernel.state.typed_json import check_size, said_of
from noesium_stream.kernel.step.answer import Answer, AnswerType
from noesium_stream.kernel.step.position import INTERRUPT, Place


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that has come to a run.

    Attributes:
        value: any JSON value.
        event_id: the event that it is on the log.
        sent_by: the name in which it was sent.
        sent_ms: when it was sent, in milliseconds since the epoch, by the sender's clock.
    """

    value: Any
    event_id: str
    sent_by: str
    sent_ms: int


class Waits:
    """The questions, signals and timers of one step."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def ask(
        self,
        question: Any,
        *,
        schema: Any = None,
        approvers: Sequence[str] | None = None,
        minimum: int | None = None,
        timeout: Duration | None = None,
        on_timeout: Any = None,
        kind: str = "approval",
        approval_id: str | None = None,
    ) -> Answer:
        """See `Step.interrupt`; `approval_id`: of a question that its content does not identify."""
        if on_timeout is not None and timeout is None:
            raise KernelError(
                f"The node {self._place.node} says what to take when a question times out, but not when.",
                hint="Give `timeout` as well.",
            )
        expected = AnswerType(schema)
        decision = to_json(on_timeout, "on_timeout")
        if decision is not None:
            expected.check_decision(decision)
        who = f"The node {self._place.node}"
        with said_of(who):
            content = to_json(question, "question")
        check_size(content, "question", who)
        people = [approvers] if isinstance(approvers, str) else list(approvers or ())
        _check_minimum(minimum, people, who)
        approval_id = approval_id or self._place.call_id(kind, self._place.node, content)
        asked = await self._asked(approval_id, content, expected, people, minimum, timeout)
        return await self._answered(asked, expected, decision)

    async def ask_again(self, recorded: EventEnvelope) -> Answer:
        """Wait for the answer to a question that is recorded, also in the recording of a replay."""
        payload = recorded.payload
        approval_id = payload["approval_id"]
        self._place.note_call(approval_id)
        asked = self._place.history.approvals.get(approval_id)
        if asked is None:
            fields = {name: payload.get(name) for name in ApprovalRequested.model_fields}
            asked = self._place.stage(ApprovalRequested(**fields), key=approval_id)
        return await self._answered(asked, AnswerType(payload.get("answer_schema")), None)

    async def _answered(self, asked: EventEnvelope, expected: AnswerType, decision: Any) -> Answer:
        approval_id, deadline_ms = asked.payload["approval_id"], asked.payload["deadline_ms"]
        history = self._place.history
        await self._until(lambda: approval_id in history.closed, deadline_ms)
        closed = history.closed.get(approval_id)
        if closed is None:
            closed = self._place.stage(
                ApprovalExpired(
                    run_id=self._place.run_id,
                    approval_id=approval_id,
                    deadline_ms=deadline_ms,
                    decision=decision,
                ),
                asked.event_id,
            )
        if closed.event_type == "approval.answered":
            answers = [answer.payload for answer in history.answers[approval_id]]
            return expected.answered(asked.payload, closed.payload, answers)
        if closed.payload["decision"] is None:
            raise ApprovalExpiredError(
                f"Nobody answered a question of the node {self._place.node} by {to_rfc3339(deadline_ms)}.",
                hint="Give `on_timeout` to say what is taken then, or a longer `timeout`.",
            )
        return expected.expired(asked.payload, closed.payload["decision"])

    async def interrupt(self, question: Any, schema: Any = None) -> Any:
        """Ask as LangGraph's `interrupt` does: anyone, without a deadline; returns the answer's plain value.

        It has its own kind, apart from `ask`, because the executor asks it once and not every execution of
        the body.
        """
        return (await self.ask(question, schema=schema, kind=INTERRUPT)).value

    async def signal(self, name: str) -> Any:
        """See `Step.signal`. The record of the wait is in the commit after which it waits."""
        self._place.check_open()
        before = self._place.history.dropped.get(name, 0)
        index = before + self._place.occurrence(f"signal:{name}")
        return copied((await self._signal(name, index)).payload.get("value"))

    async def nth_signal(self, name: str, number: int) -> Signal:
        """See `Step.nth_signal`."""
        self._place.check_open()
        if number < 0:
            raise KernelError(f"The node {self._place.node} waits for signal {number}: they count from 0.")
        event = await self._signal(name, number)
        value = copied(event.payload.get("value"))
        return Signal(value, event.event_id, event.producer.agent_id, event.timestamp_ms)

    async def _signal(self, name: str, index: int) -> EventEnvelope:
        place = self._place
        signals, at = place.history.signals, index - place.history.dropped.get(name, 0)
        if at < 0:
            raise KernelError(
                f"The node {place.node} asks for signal {index} of {name}, which an earlier segment of the "
                "run has taken.",
                hint="Keep in the state what of a signal is needed later.",
            )
        missing = at + 1 - len(signals.get(name, ()))
        if missing > 0:
            self._note_wait(name, index, missing)
        await place.journal.until(lambda: len(signals.get(name, ())) > at)
        place.taken[name] = max(place.taken.get(name, 0), index + 1)
        return signals[name][at]

    def _note_wait(self, name: str, index: int, missing: int) -> None:
        """Stage that this attempt of the node waits for a signal, unless an earlier execution of it did."""
        place = self._place
        wait_id = place.derived("signal", name, str(index), str(place.attempt))
        if wait_id not in place.history.awaited:
            event = SignalAwaited(
                run_id=place.run_id, wait_id=wait_id, node=place.node, name=name, missing=missing
            )
            place.stage(event, key=wait_id)

    async def sleep(self, duration: Duration) -> None:
        """See `Step.sleep`."""
        ms = max(0, round(in_seconds(duration, "duration") * 1000))
        timer_id = self._place.call_id("timer", "sleep", ms)
        await self._timer(timer_id, self._place.clock.now_ms() + ms, self._place.journal.has_passed)

    async def sleep_until(self, moment: datetime) -> None:
        """See `Step.sleep_until`."""
        due_ms = to_ms(moment)
        clock = self._place.clock
        timer_id = self._place.call_id("timer", "until", due_ms)
        await self._timer(timer_id, due_ms, lambda moment_ms: clock.now_ms() >= moment_ms)

    async def _asked(
        self,
        approval_id: str,
        question: Any,
        expected: AnswerType,
        approvers: list[str],
        minimum: int | None,
        timeout: Duration | None,
    ) -> EventEnvelope:
        """The question as it was first asked, which may be now."""
        place = self._place
        place.note_call(approval_id)
        asked = place.history.approvals.get(approval_id)
        if asked is not None:
            return asked
        await place.before_call(approval_id, "another question")
        deadline_ms = None
        if timeout is not None:
            deadline_ms = place.clock.now_ms() + max(0, round(in_seconds(timeout, "timeout") * 1000))
        event = ApprovalRequested(
            run_id=place.run_id,
            approval_id=approval_id,
            node=place.node,
            question=question,
            fingerprint=hashlib.sha256(canonical_json(question)).hexdigest(),
            answer_schema=expected.json_schema,
            approvers=approvers,
            minimum=minimum,
            deadline_ms=deadline_ms,
        )
        return place.stage(event, key=approval_id)

    async def _timer(self, timer_id: str, due_ms: int, has_passed: Callable[[int], bool]) -> None:
        place = self._place
        started = place.history.timers.get(timer_id)
        if started is None:
            await place.before_call(timer_id, "another timer")
            event = TimerStarted(run_id=place.run_id, timer_id=timer_id, node=place.node, due_ms=due_ms)
            started = place.stage(event, key=timer_id)
        due_ms = started.payload["due_ms"]
        await self._until(lambda: timer_id in place.history.fired or has_passed(due_ms), due_ms)
        if timer_id not in place.history.fired:
            fired = TimerFired(run_id=place.run_id, timer_id=timer_id, due_ms=due_ms)
            place.stage(fired, started.event_id)

    async def _until(self, happened: Callable[[], bool], deadline_ms: int | None) -> None:
        """Wait for an event or for the deadline. The step itself records that the deadline has passed: with
        its next commit, or again after a crash before that commit; the difference is not visible outside.
        """
        clock = self._place.clock
        if deadline_ms is None:
            await self._place.journal.until(happened)
        else:
            due = deadline_ms
            await self._place.journal.until(lambda: happened() or clock.now_ms() >= due, due)


def _check_minimum(minimum: int | None, approvers: Sequence[str], who: str) -> None:
    """Refuse a number of people that can never approve."""
    if minimum is None:
        return
    if not 1 <= minimum <= MAX_MINIMUM:
        raise KernelError(f"{who} wants {minimum} people to approve: 1 to {MAX_MINIMUM} can.")
    people = {name for name in approvers if not name.startswith(ROLE)}
    if approvers and len(people) == len(set(approvers)) < minimum:
        raise KernelError(f"{who} wants {minimum} people to approve, and names {len(people)}.")
