"""Judges what comes in: it is transport, and only the owner's record of it in the journal counts."""

from __future__ import annotations

import base64
from collections.abc import Container, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol

from noesium_stream.capability import in_range
from noesium_stream.clock import Clock
from noesium_stream.errors import (
    ConfigError,
    CorruptRecordError,
    EventValidationError,
    NoesiumError,
    RecordTooLargeError,
    UnknownSchemaError,
)
from noesium_stream.event.answers import refusal_of
from noesium_stream.event.calls import ANSWERS, CALLS, COMMANDS
from noesium_stream.event.codec import is_framed
from noesium_stream.event.effects import refusal, takes_report
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import EventValidationFailed, PartitionOutgrown, ToolInvocationRequested
from noesium_stream.log.headers import ORIGIN, SOURCE
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.log.prepare import MAX_JOURNAL_BYTES
from noesium_stream.log.record import Record
from noesium_stream.worker.session import RunSession

QUOTED_BYTES: Final = 500_000
"""How much of a record a dead letter quotes: in base64 a larger one would not fit into a record itself."""


COPY_BYTES: Final = 2_048
"""What the headers of an accepted copy take at most: number, source, origin, deadline and mark."""

ORIGIN_BYTES: Final = 300
LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: no later moment has a text."""


class Verdict(Enum):
    """Start a run with it, deliver it to an open run, or pass over it (a repetition, or too late); or it is
    about the partition itself.
    """

    START = "start"
    DELIVER = "deliver"
    PASS = "pass"
    OUTGROWN = "outgrown"


def judge(
    record: Record, agent_type: str, runs: Mapping[str, RunSession], ended: Container[str]
) -> Verdict | NoesiumError:
    """Decide on a received event; an error means that it is a dead letter, and why.

    Raises:
        CorruptRecordError: it cannot be decoded or is not valid.
    """
    event = record.envelope
    if len(record.value) + len(record.key) > MAX_JOURNAL_BYTES - COPY_BYTES:
        # A writer may send what no copy of it can hold; refused by the log, that would stop the partition.
        return RecordTooLargeError(
            f"{event.event_type} {event.event_id} has {len(record.value):,} bytes: with its copy's headers "
            "it does not fit into a journal."
        )
    if len(record.header(ORIGIN) or b"") > ORIGIN_BYTES:
        return EventValidationError(f"header {ORIGIN}", f"has more than {ORIGIN_BYTES} bytes")
    if event.event_type == PartitionOutgrown.TYPE:
        return Verdict.OUTGROWN
    run_id = event.payload.get("caller_run_id" if event.event_type in ANSWERS else "run_id")
    if event.partition_key != run_id or not run_id:
        return EventValidationError("partition_key", f"is {event.partition_key}, but the run is {run_id}")
    if record.key != run_id:
        # The key chose the partition: another one would make two owners of one run.
        return EventValidationError("key", f"is {record.key}, but the run is {run_id}")
    if event.event_type in COMMANDS:
        refused = _refused_command(event, agent_type)
        if refused is not None:
            return refused
        # The same command twice meets itself here: same run id, one run.
        return Verdict.PASS if run_id in runs or run_id in ended else Verdict.START
    judge_for_run = _FOR_OPEN_RUNS.get(event.event_type)
    if judge_for_run is None:
        return EventValidationError("event_type", f"{event.event_type} is nothing that an inbox takes")
    session = runs.get(run_id)
    return Verdict.PASS if session is None or session.ended else judge_for_run(event, session)


def _refused_command(event: EventEnvelope, agent_type: str) -> EventValidationError | None:
    """Why a command is none for these agents; None where it is one."""
    payload = event.payload
    target = payload.get("target_agent_type", payload.get("agent_type"))
    if target != agent_type:
        return EventValidationError("payload", f"is for agents of type {target}, not {agent_type}")
    try:
        in_range("0.0.0", payload.get("agent_version"))
    except ConfigError as error:
        return EventValidationError("payload.agent_version", error.message)
    if (payload.get("deadline_ms") or 0) > LATEST_MS:
        return EventValidationError("payload.deadline_ms", "is behind the year 9999")
    if event.event_type != ToolInvocationRequested.TYPE:
        return None
    if payload.get("capability_id") != f"tool.{payload['toolkit_name']}.{payload['tool_name']}":
        return EventValidationError("payload.capability_id", "is not that of the tool that is asked for")
    if payload.get("reply_to") is None:
        return EventValidationError("payload.reply_to", "is missing: nobody waits for the answer")
    return None


def _judge_signal(event: EventEnvelope, session: RunSession) -> Verdict | NoesiumError:
    """It waits until the run asks for it."""
    return Verdict.DELIVER


def _judge_cancel(event: EventEnvelope, session: RunSession) -> Verdict | NoesiumError:
    """Once; not to a run that is ending already."""
    history = session.history
    return Verdict.DELIVER if (history.stop or history.compensation) is None else Verdict.PASS


def _judge_resolution(event: EventEnvelope, session: RunSession) -> Verdict | NoesiumError:
    """A decision counts once, and only about an outcome that waits for one."""
    refused = refusal(session.history, event.payload)
    if refused is None:
        return Verdict.DELIVER
    return Verdict.PASS if refused.late else EventValidationError("payload", refused.reason)


def _judge_report(event: EventEnvelope, session: RunSession) -> Verdict | NoesiumError:
    """What came of a call counts once, from the process that made it, while nobody knows or has decided."""
    requested = session.history.requested.get(event.payload["effect_id"])
    if requested is None:
        return EventValidationError("payload.effect_id", "the run has no such effect")
    if requested.event_id == event.payload["intent_id"] and requested.producer != event.producer:
        return EventValidationError("producer", "the call was made by another process")
    return Verdict.DELIVER if takes_report(session.history, event.payload) else Verdict.PASS


def _judge_answer(event: EventEnvelope, session: RunSession) -> Verdict | NoesiumError:
    """An answer counts once, from the provider that was chosen, to a call that was made."""
    call_id = event.payload["call_id"]
    invoked = session.history.invoked.get(call_id)
    if invoked is None:
        return EventValidationError("payload.call_id", f"the run made no call {call_id}")
    if event.event_type != CALLS[invoked.event_type]:
        return EventValidationError("event_type", f"is no answer to {invoked.event_type}")
    chosen = invoked.payload["target_agent_id"]
    if event.payload.get("provider_agent_id") != chosen or event.producer.agent_id != chosen:
        return EventValidationError("payload.provider_agent_id", f"the call was made to {chosen}")
    return Verdict.PASS if call_id in session.history.answered else Verdict.DELIVER


def _judge_approval(event: EventEnvelope, session: RunSession) -> Verdict | NoesiumError:
    """A person's answer counts once, to a question that was asked, if it is what the question wants."""
    approval_id = event.payload["approval_id"]
    asked = session.history.approvals.get(approval_id)
    if asked is None:
        return EventValidationError("payload.approval_id", f"the run asked no question {approval_id}")
    problem = refusal_of(asked.payload, event.payload)
    if problem is not None:
        return EventValidationError(f"payload.{problem.field}", problem.reason)
    return Verdict.PASS if approval_id in session.history.closed else Verdict.DELIVER


_FOR_OPEN_RUNS: Final = {
    "run.signalled": _judge_signal,
    "run.cancel.requested": _judge_cancel,
    **dict.fromkeys(ANSWERS, _judge_answer),
    "approval.answered": _judge_approval,
    "effect.reported": _judge_report,
    "effect.resolved": _judge_resolution,
}


FOR_RUNS: Final = frozenset(_FOR_OPEN_RUNS)
"""Event types of what is sent to runs."""


class Unready(NamedTuple):
    """Another worker may be able to take a record that this one cannot; `reason`: what it waits for."""

    reason: str


def unknown_here(record: Record, error: CorruptRecordError) -> Unready | None:
    """What a record waits for that cannot be decoded; None: nobody could ever decode it.

    An event of a type, of a version of it or with an Avro schema that is not known here is one; bytes that
    are no event at all are none.
    """
    if not isinstance(error.cause, UnknownSchemaError) or not is_framed(record.value):
        return None
    return Unready(f"it waits for a worker that knows its schema: {error.cause.message}")


class LetterWriter(Protocol):
    """Who writes a dead letter: the owner of the partition that it came to."""

    clock: Clock
    agent_ref: AgentRef
    journal: str
    partition: int
    log: EventLog


def dead_letter(
    owner: LetterWriter,
    record: Record,
    error: NoesiumError,
    origin: Position | None = None,
    topic_id: str | None = None,
) -> list[Outgoing]:
    """The record in the dead letter topic, and in the journal that it was passed over; one commit.

    `origin` is where it came in, if that is not its own position; `topic_id` that of the record's topic.
    """
    came_in = origin or Position(record.topic, record.partition, record.offset)
    trace_of = [f"{type(error).__name__}: {error.message}"]
    quoted = record.value[:QUOTED_BYTES]
    if len(quoted) < len(record.value):
        trace_of.append(f"only {len(quoted)} of the record's {len(record.value)} bytes are quoted here")
    event = EventValidationFailed(
        failure_reason=error.message,
        validation_trace=trace_of,
        topic=came_in.topic,
        partition=came_in.partition,
        offset=came_in.offset,
        topic_id=topic_id if came_in.topic == record.topic else None,
        record_base64=base64.b64encode(quoted).decode(),
        whole=len(quoted) == len(record.value),
    )
    key = f"partition-{owner.partition}"
    trace = TraceContext(owner.clock.token(16), owner.clock.token(8))
    envelope = event.to_envelope(owner.agent_ref, trace, partition_key=key, clock=owner.clock)
    place = f"{record.topic}/{record.partition}/{record.offset}".encode()
    return [
        Outgoing(envelope, owner.log.topology.dlq, 0, key),
        Outgoing(envelope, owner.journal, owner.partition, key, ((SOURCE, place),)),
    ]
