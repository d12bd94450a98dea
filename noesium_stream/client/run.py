"""A run as its caller sees it: result, events, signals, cancellation; everything goes over the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

from noesium_stream.client.approvals import Approval, question_to_answer, read_questions
from noesium_stream.client.effects import (
    Decision,
    OpenEffect,
    open_effects,
    open_ledgers,
    resolution,
)
from noesium_stream.client.following import RunReader, Since, closing
from noesium_stream.client.indexed import RunIndex
from noesium_stream.client.runs import ENDED, PARKED_TYPES, RUN_TYPES, RunInfo, fold_record
from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CorruptRecordError,
    DeadlineExceededError,
    InputDiffersError,
    RunCancelledError,
    RunEndedError,
    RunFailedError,
    RunNotFoundError,
    RunTimeoutError,
)
from noesium_stream.event.calls import COMMANDS, input_of
from noesium_stream.event.canonical import canonical_json
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.effects import EffectLedger
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.json_value import to_json
from noesium_stream.event.standard import EffectResolved, RunCancelRequested, RunSignalled
from noesium_stream.log.generations import generations
from noesium_stream.log.port import EventLog, Types
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of

_CANCEL: Final = ("run.cancel.requested",)


class Run:
    """A handle of one run; made by `Client.start` and `Client.run`, cheap, and valid in any process."""

    def __init__(
        self,
        log: EventLog,
        agent_type: str,
        run_id: str,
        producer: AgentRef,
        clock: Clock,
        *,
        since: Since | None = None,
        index: RunIndex | None = None,
    ) -> None:
        self.id = run_id
        self.agent_type = agent_type
        self._log = log
        self._producer = producer
        self._clock = clock
        self._since = since
        self._index = index

    @property
    def log(self) -> EventLog:
        """The log that it is on."""
        return self._log

    def __repr__(self) -> str:
        return f"<Run {self.agent_type} {self.id}>"

    def other(self, agent_type: str, run_id: str) -> Run:
        """A handle of another run on the same log, which is known to be there."""
        return Run(self._log, agent_type, run_id, self._producer, self._clock, index=self._index)

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the end of the run and return its result.

        Args:
            timeout: seconds; None waits for ever, 0 looks at what is there.

        Raises:
            RunFailedError: it ended with an error, or its command expired.
            RunCancelledError: it was cancelled.
            RunTimeoutError: no outcome in time; the run goes on.
        """
        waits = timeout != 0
        try:
            async with asyncio.timeout(timeout if waits else None):
                async with aclosing(self._records(follow=waits, types=ENDED)) as records:
                    async for record in records:
                        return _outcome(record.unchecked)
            if not waits:
                raise TimeoutError
        except TimeoutError:
            raise RunTimeoutError(
                f"Run {self.id} of {self.agent_type} has no outcome after {timeout} s.",
                hint="It goes on by itself once a worker has it; ask again with the same id.",
            ) from None
        raise RunNotFoundError(f"The journal of {self.agent_type} ended without an outcome of {self.id}.")

    async def events(self, *, follow: bool = True) -> AsyncGenerator[EventEnvelope, None]:
        """Yield the run's journal in order, once each; ends after its terminal event.

        With `follow` it waits for what is still to come, without it ends with what is there.
        """
        async with aclosing(self.records(follow=follow)) as records:
            async for record in records:
                yield record.unchecked

    async def records(self, *, follow: bool = True) -> AsyncGenerator[Record, None]:
        """As `events`, with positions and headers."""
        async with aclosing(self._records(follow=follow)) as records:
            async for record in records:
                yield record

    async def _records(self, *, follow: bool, types: Types = None) -> AsyncGenerator[Record, None]:
        reader = RunReader(self._log, self.agent_type, self.id, types, self._since, self._index)
        async with aclosing(reader.read(follow=follow)) as records:
            async for record in records:
                yield record

    async def info(self) -> RunInfo:
        """The run at a glance, as the log has it now.

        Raises:
            RunNotFoundError: neither inbox nor journal know it.
        """
        runs: dict[str, RunInfo] = {}
        for generation in await generations(self._log, self.agent_type):
            for topic in (generation.inbox, generation.journal):
                async for record in self._own(topic, RUN_TYPES):
                    fold_record(runs, record, self.agent_type)
        if self.id not in runs:
            raise RunNotFoundError(f"There is no run {self.id} of {self.agent_type} on this log.")
        return runs[self.id]

    async def commands(self) -> AsyncGenerator[EventEnvelope, None]:
        """Yield what waits in the inbox to make this run: its only trace before anyone takes it up."""
        async with aclosing(self._in_inbox(COMMANDS)) as commands:
            async for event in commands:
                yield event

    async def _in_inbox(self, types: Types) -> AsyncGenerator[EventEnvelope, None]:
        for generation in await generations(self._log, self.agent_type):
            async with aclosing(self._own(generation.inbox, types)) as records:
                async for record in records:
                    try:
                        event = record.unchecked
                    except CorruptRecordError:
                        continue  # no command: its owner makes it a dead letter
                    yield event

    async def _own(self, topic: str, types: Types) -> AsyncGenerator[Record, None]:
        """Yield what a topic has for the run now."""
        ends = await self._log.end(topic)
        partition = partition_of(self.id, len(ends))
        source = self._log.read(topic, {}, until={partition: ends[partition]}, types=types)
        async with closing(source) as records:
            async for record in records:
                if record.key == self.id or _is_about(record, self.id):
                    yield record

    async def check_input(self, input: Mapping[str, Any]) -> None:
        """Refuse a run that was asked something else under the same idempotency key.

        The first command counts, in the order of the inbox: call it after `Client.start`.

        Raises:
            InputDiffersError: the recorded input is another one; names the run.
            StateError: the input has no JSON form.
        """
        wanted = canonical_json(to_json(dict(input), "input"))
        async for first in self._asked():
            if canonical_json(input_of(first.payload)) != wanted:
                raise InputDiffersError(
                    f"Run {self.id} of {self.agent_type} has this key already, and was asked something else.",
                    hint=f"Give another key, or the same input. What it was asked: noesium show {self.id}",
                )
            return

    async def _asked(self) -> AsyncGenerator[EventEnvelope, None]:
        """Yield the run's commands: the journal's copy of the one that counted, then those in the inbox."""
        async with aclosing(self._records(follow=False, types=COMMANDS)) as records:
            async for record in records:
                if record.unchecked.payload.get("run_id") == self.id:
                    yield record.unchecked
        async with aclosing(self.commands()) as commands:
            async for event in commands:
                yield event

    async def signal(self, name: str, value: Any = None) -> None:
        """Send a message to the run; it is delivered once, in the order of sending."""
        await self._send(RunSignalled(run_id=self.id, name=name, value=value))

    async def open_effects(self) -> list[OpenEffect]:
        """The effects of this run that wait for a person to decide, the oldest first."""
        ledgers = await open_ledgers(self._log, self.agent_type, self.id)
        return [effect for ledger in ledgers.values() for effect in open_effects(ledger, self.agent_type)]

    async def left_effects(self) -> list[OpenEffect]:
        """The effects of which nobody knows what came of them, and the run has ended: nothing is decided."""
        ledgers = await open_ledgers(self._log, self.agent_type, self.id, ended=True)
        return [
            effect
            for ledger in ledgers.values()
            for effect in open_effects(ledger, self.agent_type, ended=True)
        ]

    async def resolve_effect(
        self,
        effect_id: str,
        decision: Decision,
        result: Any = None,
        *,
        reason: str | None = None,
        resolved_by: str | None = None,
    ) -> EffectResolved:
        """Decide about an effect of unknown outcome, or a compensation that failed; return what was sent.

        `effect_id` may be the beginning of it. "result": it was done and gave `result`; "retry": call it
        again, under the same idempotency key; "fail": it was not done, and the node gets an
        `EffectFailedError` (a compensation is given up). `resolved_by`: who decides; default: this client.

        Raises:
            RunNotFoundError: the run is not there.
            RunEndedError: the run has ended.
            EffectDecisionError: no such effect, or nothing to decide about it, or not in this way.
            StateError: `result` has no JSON form.
        """
        info = await self.info()
        if info.status in ENDED.values():
            raise RunEndedError(
                f"Run {self.id} has ended already: {info.status}.", hint=f"See: noesium show {self.id}"
            )
        ledgers = await open_ledgers(self._log, self.agent_type, self.id)
        by = resolved_by or self._producer.agent_id
        event = resolution(
            ledgers.get(self.id, EffectLedger()), self.id, effect_id, decision, result, reason, by
        )
        await self._send(event)
        return event

    async def cancel_requested(self) -> EventEnvelope | None:
        """The first request to end the run, whether a worker has it or not; None: nobody has asked."""
        async with aclosing(self._records(follow=False, types=_CANCEL)) as records:
            async for record in records:
                return record.unchecked
        async with aclosing(self._in_inbox(_CANCEL)) as requests:
            async for event in requests:
                return event
        return None

    async def cancel(self, reason: str | None = None) -> None:
        """Ask for the run to end as cancelled, with everything that it has delegated."""
        await self._send(RunCancelRequested(run_id=self.id, reason=reason))

    async def approvals(self) -> list[Approval]:
        """What the run has asked people, in that order, and how it stands."""
        return (await read_questions(self._log, self.agent_type, self.id)).all()

    async def approve(
        self, approval_id: str | None = None, *, value: Any = None, by: str | None = None
    ) -> Approval:
        """Answer a question of the run with yes; it goes on wherever it is.

        Args:
            approval_id: which one, or the beginning of it; not needed where one is open.
            value: what the question asks for, a JSON value; None: nothing beyond the yes.
            by: who answers; default: this client's agent id.

        Raises:
            RunEndedError: the run has ended.
            ApprovalClosedError: it was answered before, or its deadline has passed.
            ApprovalError: none is open, several are, there is none of this id, or `by` may not answer it.
            EventValidationError: the value is not what the question wants; names the field.
        """
        return await self._answer(approval_id, True, value, by)

    async def reject(
        self, approval_id: str | None = None, *, value: Any = None, by: str | None = None
    ) -> Approval:
        """As `approve`, with no."""
        return await self._answer(approval_id, False, value, by)

    async def _answer(self, approval_id: str | None, approved: bool, value: Any, by: str | None) -> Approval:
        questions = await read_questions(self._log, self.agent_type, self.id)
        now_ms = self._clock.now_ms()
        question = question_to_answer(questions, self.agent_type, self.id, approval_id, now_ms)
        event = question.answer(approved, to_json(value, "value"), by or self._producer.agent_id)
        await self._send(event, question.event_id)
        return question

    async def _send(self, event: DomainEvent, causation_id: str | None = None) -> None:
        trace = TraceContext(self._clock.token(16), self._clock.token(8))
        envelope = event.to_envelope(
            self._producer,
            trace,
            causation_id,
            correlation_id=self.id,
            partition_key=self.id,
            metadata={"to": self.agent_type},
            clock=self._clock,
        )
        await self._log.append([envelope])


def _outcome(event: EventEnvelope) -> Any:
    payload = event.payload
    if event.event_type == "run.completed":
        return payload.get("result")
    if event.event_type == "run.cancelled":
        reason = payload.get("reason")
        raise RunCancelledError(f"Run {payload['run_id']} was cancelled" + (f": {reason}" if reason else "."))
    if event.event_type == "command.expired":
        raise RunFailedError(
            f"Run {payload['run_id']} was not executed: its command was {payload['age_ms']} ms old, its ttl "
            f"{payload['ttl_ms']} ms."
        )
    where, hint = payload.get("where"), payload.get("hint")
    late = payload["error_type"] == DeadlineExceededError.__name__
    if late and "where" not in payload:  # else a node has raised one of its own
        raise DeadlineExceededError(f"Run {payload['run_id']} failed: {payload['message']}.")
    raise RunFailedError(
        f"Run {payload['run_id']} failed: {payload['error_type']}: {payload['message']}",
        hint="\n".join([*([f"at {where}"] if where else []), *([hint] if hint else [])]) or None,
    )


def _is_about(record: Record, run_id: str) -> bool:
    """Whether a record of the partition says something of a run's parked requests."""
    return record.event_type in PARKED_TYPES and record.unchecked.payload.get("run_id") == run_id
