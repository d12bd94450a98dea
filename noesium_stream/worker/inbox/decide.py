"""The decider: what becomes of an inbox record, as a pure function of the partition's state.

`decide(state, record)` has no event loop, no log and no clock in it: the same state and the same record give
the same decision in every process. `admission` is the loop around it, and `PartitionState.evolve` the other
half of the pair: it folds the journal records in which a decision was committed.

An inbox is transport, and anyone may write it: only the owner's record of it in the journal counts, and
whatever is wrong with one record becomes a dead letter of that record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

import orjson

from noesium_stream.capabilities.version import in_range
from noesium_stream.clock import to_rfc3339
from noesium_stream.errors import (
    ConfigError,
    CorruptRecordError,
    EventValidationError,
    NoesiumError,
    PermissionDeniedError,
    RecordTooLargeError,
    UnknownSchemaError,
)
from noesium_stream.event.codec.codec import is_framed
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.limits import MAX_NAME
from noesium_stream.event.rules.agent_calls import ANSWERS, CALLS, COMMANDS
from noesium_stream.event.rules.approval_answers import approver_of, refusal_of
from noesium_stream.event.rules.effect_ledger import refusal as decision_refusal
from noesium_stream.event.rules.effect_ledger import takes_report
from noesium_stream.event.rules.slices import ANSWERS as SLICE_ANSWERS
from noesium_stream.event.rules.slices import TREASURER
from noesium_stream.event.sealing.seal import is_erased
from noesium_stream.event.standard import (
    ApprovalAnswered,
    PartitionOutgrown,
    RunCancelRequested,
    TaskCompleted,
    TaskRequested,
    ToolInvocationRequested,
)
from noesium_stream.event.standard.request import BEHIND
from noesium_stream.event.trust.policy import Policy, Right, Ruling, ruling
from noesium_stream.event.trust.speaking import CLIENT
from noesium_stream.kernel import RunHistory
from noesium_stream.log.headers import ALLOWED, LATEST_MS, ORIGIN
from noesium_stream.log.port import Header
from noesium_stream.log.prepare import MAX_JOURNAL_BYTES
from noesium_stream.log.record import Record
from noesium_stream.log.sender_proof import SENDER_BYTES
from noesium_stream.worker.inbox.faults import is_of_the_record, refusal_by

COPY_BYTES: Final = 4_096 + SENDER_BYTES
"""Upper bound of the headers of an accepted copy: number, source, origin, sender's proof, deadline, mark, and
by which rule it is allowed."""

ORIGIN_BYTES: Final = 300


class Action(Enum):
    """What becomes of an inbox record."""

    START = "start"
    """It is a command: a run starts with it, now or when its turn comes."""
    DELIVER = "deliver"
    """It is accepted for an open run."""
    QUEUE = "queue"
    """It waits behind the command of its run, which waits for its turn."""
    FORWARD = "forward"
    """It goes to the next generation of the agent's topics."""
    DEFER = "defer"
    """It is kept in the journal for a worker that can take it."""
    WITHDRAW = "withdraw"
    """It cancels a run whose requests are deferred: they are taken up as far as possible, then it is."""
    DEAD_LETTER = "dead letter"
    """It is wrong."""
    OUTGROWN = "outgrown"
    """It announces the next generation of the agent's topics."""
    SKIP = "skip"
    """It changes nothing: a repetition, or it comes too late."""


class Decision(NamedTuple):
    """A decision on one record.

    Attributes:
        action: what becomes of it.
        reason: why it is deferred, or, for people, why it comes too late.
        error: why it is a dead letter.
        headers: further headers of the journal's copy.
    """

    action: Action
    reason: str = ""
    error: NoesiumError | None = None
    headers: tuple[Header, ...] = ()


START: Final = Decision(Action.START)
DELIVER: Final = Decision(Action.DELIVER)
SKIP: Final = Decision(Action.SKIP)


class AdmissionState(Protocol):
    """What the decider reads of a partition's state."""

    @property
    def agent_type(self) -> str:
        """Agent type whose inbox it is."""

    @property
    def policy(self) -> Policy | None:
        """Who may ask what of the agent; None: everybody everything."""

    @property
    def grown(self) -> bool:
        """Whether the agent's topics have a next generation."""

    def history(self, run_id: str) -> RunHistory | None:
        """History of an open run; None: it is not open, or its outcome is on the log."""

    def is_known(self, run_id: str) -> bool:
        """Whether the run is open, has ended, or has a command that waits for its turn."""

    def has_ended(self, run_id: str) -> bool:
        """Whether the run has ended."""

    def command_waits(self, run_id: str) -> bool:
        """Whether the run's command waits for its turn."""

    def is_deferred(self, run_id: str) -> bool:
        """Whether a request of the run is deferred."""

    def deferred_now(self, run_id: str) -> bool:
        """Whether one is deferred by the commit that is being made."""

    def may_have_deferred_command(self, run_id: str) -> bool:
        """Whether a deferred request of the run may be its command."""

    def missing_version(self, command: EventEnvelope) -> str | None:
        """Version that a command asks for and that this worker does not carry; None: it carries one."""


def decide(state: AdmissionState, record: Record) -> Decision:
    """Decide on an inbox record, when it is read and again when the turn of its command comes."""
    found = judge(state, record)
    action, run_id = found.action, record.key
    if action is Action.SKIP and _belongs_to_deferred(state, record):
        cancels = record.envelope.event_type == RunCancelRequested.TYPE
        if cancels and not state.deferred_now(run_id):
            return Decision(Action.WITHDRAW)
        return Decision(Action.DEFER, BEHIND)
    if action is Action.DEFER:
        return SKIP if state.has_ended(run_id) else found  # whatever it is, it comes too late
    if is_forwarded(state, run_id, action):
        return Decision(Action.FORWARD)
    if action is Action.SKIP and state.command_waits(run_id) and record.envelope.event_type not in COMMANDS:
        return Decision(Action.QUEUE)
    return found


def judge(state: AdmissionState, record: Record, *, any_version: bool = False) -> Decision:
    """Say what a record is: START, DELIVER, OUTGROWN, DEFER, DEAD_LETTER or SKIP.

    Args:
        state: of the partition.
        record: of the inbox, or a deferred one.
        any_version: nobody waits for another worker: what this one cannot take is a dead letter, and a
            command starts with whatever version is there.
    """
    if len(record.key) > MAX_NAME:
        # All that is written about a record has its key, some of it several times.
        return _invalid("key", f"has more than {MAX_NAME:,} characters")
    try:
        return _judge_all(state, record, any_version)
    except CorruptRecordError as error:
        if any_version:
            return _refuse(EventValidationError("value", f"the run was cancelled, and {error.cause.message}"))
        return _undecodable(record, error)
    except Exception as error:  # a record that nobody foresaw stops nothing but itself
        if not is_of_the_record(error):
            raise
        return _refuse(refusal_by(error))


def _judge_all(state: AdmissionState, record: Record, any_version: bool) -> Decision:
    found = _judge(state, record)
    if found.action is not Action.START or state.grown or any_version:
        return found  # who is handed a forwarded command asks anew
    missing = state.missing_version(record.envelope)
    if missing is None:
        return found
    return Decision(Action.DEFER, f"it waits for a worker that carries {missing}")


def is_forwarded(state: AdmissionState, run_id: str, action: Action) -> bool:
    """Whether it goes to the next generation: a new command, or a request for a run that is unknown here."""
    if not state.grown or action not in (Action.START, Action.SKIP):
        return False
    return action is Action.START or not state.is_known(run_id)


def _belongs_to_deferred(state: AdmissionState, record: Record) -> bool:
    """Whether a record was sent to a run whose command is deferred."""
    run_id = record.key
    if not state.is_deferred(run_id) or state.is_known(run_id) or record.envelope.event_type in COMMANDS:
        return False
    # Once there is a next generation, the run may be at work there, whatever else of it is deferred here.
    return not state.grown or state.deferred_now(run_id) or state.may_have_deferred_command(run_id)


def _undecodable(record: Record, error: CorruptRecordError) -> Decision:
    """Defer an event whose type, version or Avro schema is unknown here; other bytes are a dead letter."""
    if not isinstance(error.cause, UnknownSchemaError) or not is_framed(record.value):
        return _refuse(error)
    return Decision(Action.DEFER, f"it waits for a worker that knows its schema: {error.cause.message}")


def _judge(state: AdmissionState, record: Record) -> Decision:
    event = record.envelope
    if len(record.value) + len(record.key) > MAX_JOURNAL_BYTES - COPY_BYTES:
        # A writer may send what no copy of it can hold; refused by the log, that would stop the partition.
        return _refuse(
            RecordTooLargeError(
                f"{event.event_type} {event.event_id} has {len(record.value):,} bytes: with its copy's "
                "headers it does not fit into a journal."
            )
        )
    if len(record.header(ORIGIN) or b"") > ORIGIN_BYTES:
        return _invalid(f"header {ORIGIN}", f"has more than {ORIGIN_BYTES} bytes")
    if event.event_type == PartitionOutgrown.TYPE:
        refused = _ruling(state, record).refused
        return Decision(Action.OUTGROWN) if refused is None else _refuse(PermissionDeniedError(refused))
    if is_erased(event):
        return _invalid("payload", "was erased: the key of its data subject is destroyed")
    run_id = event.payload.get("caller_run_id" if event.event_type in ANSWERS else "run_id")
    if event.partition_key != run_id or not run_id:
        return _invalid("partition_key", f"is {event.partition_key}, but the run is {run_id}")
    if record.key != run_id:
        # The key chose the partition: another one would make two owners of one run.
        return _invalid("key", f"is {record.key}, but the run is {run_id}")
    if event.event_type in COMMANDS:
        invalid = _invalid_command(event, state.agent_type)
        if invalid is not None:
            return invalid
        # The same command twice meets itself here: same run id, one run.
        return SKIP if state.is_known(run_id) else START
    if event.event_type not in _FOR_OPEN_RUNS:
        return _invalid("event_type", f"{event.event_type} is not a valid inbox event")
    history = state.history(run_id)
    return SKIP if history is None else _judge_for_run(state, record, history)


def _judge_for_run(state: AdmissionState, record: Record, history: RunHistory) -> Decision:
    """Judge a request to an open run: first by the run's own history, then by who sends it."""
    event = record.envelope
    found = _FOR_OPEN_RUNS[event.event_type](event, history)
    if found.action is not Action.DELIVER:
        return found
    ruled = _ruling(state, record, history)
    if ruled.refused is not None:
        return _refuse(PermissionDeniedError(ruled.refused))
    return _counted(state, record, history, ruled) if event.event_type == ApprovalAnswered.TYPE else found


def _invalid_command(event: EventEnvelope, agent_type: str) -> Decision | None:
    """Say what is wrong with a command for these agents; None: nothing."""
    payload = event.payload
    target = payload.get("target_agent_type", payload.get("agent_type"))
    if target != agent_type and event.event_type != TaskRequested.TYPE:
        return _invalid("payload", f"is for agents of type {target}, not {agent_type}")
    versions = payload.get("agent_version")
    if versions is not None:
        try:
            in_range("0.0.0", versions)
        except ConfigError as error:
            return _invalid("payload.agent_version", error.message)
    if (payload.get("deadline_ms") or 0) > LATEST_MS:
        return _invalid("payload.deadline_ms", "is behind the year 9999")
    if event.event_type == TaskRequested.TYPE:
        return _invalid_task(payload)
    if event.event_type != ToolInvocationRequested.TYPE:
        return None
    if payload.get("capability_id") != f"tool.{payload['toolkit_name']}.{payload['tool_name']}":
        return _invalid("payload.capability_id", "is not that of the tool that is asked for")
    if payload.get("reply_to") is None:
        return _invalid("payload.reply_to", "is missing: nobody waits for the answer")
    return None


def _invalid_task(payload: Mapping[str, Any]) -> Decision | None:
    """Say what is wrong with a task, which any agent may have taken that offers to; None: nothing."""
    if payload["task_id"] != payload["run_id"]:
        return _invalid("payload.task_id", f"is not {payload['run_id']}, the run that does it")
    reply_to = payload.get("reply_to")
    if reply_to is None:
        return _invalid("payload.reply_to", "is missing: nobody waits for the answer")
    if reply_to["call_id"] != payload["task_id"] or reply_to["run_id"] != payload.get("caller_run_id"):
        return _invalid("payload.reply_to", "names another call than this task's")
    return None


def _ruling(state: AdmissionState, record: Record, history: RunHistory | None = None) -> Ruling:
    """What the policy says of a request; the agent that has called a run may always cancel it."""
    event = record.envelope
    right = _RIGHTS.get(event.event_type)
    if right is None:
        return Ruling()
    question = None
    if history is not None and right == "answer":
        question = history.approvals[event.payload["approval_id"]].payload["node"]
    elif history is not None and right == "cancel" and history.started is not None:
        caller = history.started.payload.get("reply_to") or {}
        if event.producer.agent_type == caller.get("agent_type") != CLIENT:
            return Ruling()
    # Who answers a task was not chosen: it has to be somebody who may offer capabilities.
    agent_type = event.producer.agent_type if event.event_type == TaskCompleted.TYPE else state.agent_type
    return ruling(state.policy, event, record.signed_by, right, agent_type, question=question)


def _counted(state: AdmissionState, record: Record, history: RunHistory, ruled: Ruling) -> Decision:
    """Accept an answer of somebody who may give it, and say in its copy by which rule and key."""
    answer, key = record.envelope.payload, record.signed_by
    name, asked = answer["answered_by"], history.approvals[answer["approval_id"]].payload
    roles = frozenset[str]() if key is None else key.roles
    if state.policy is not None:
        roles = roles | state.policy.roles_of(name)
    problem = _problem(answer, history, roles, earlier=history.answers.get(answer["approval_id"], ()))
    if problem is not None:
        return _refuse(PermissionDeniedError(f"{problem.field} {problem.reason}"))
    approver = approver_of(asked, name, roles)
    said = {"approver": approver, "rule": ruled.rule, "key": None if key is None else key.key_id}
    known = {what: value for what, value in said.items() if value}
    return DELIVER._replace(headers=((ALLOWED, orjson.dumps(known)),)) if known else DELIVER


def _problem(
    answer: Mapping[str, Any],
    history: RunHistory,
    roles: Collection[str] | None,
    *,
    earlier: Sequence[EventEnvelope],
) -> EventValidationError | None:
    return refusal_of(
        history.approvals[answer["approval_id"]].payload,
        answer,
        [event.payload for event in earlier],
        roles=roles,
        requested_by=history.requested_by,
    )


def _judge_signal(event: EventEnvelope, history: RunHistory) -> Decision:
    """Accept a signal once: it waits until the run asks for it."""
    return SKIP if history.has_heard(event) else DELIVER


def _judge_cancel(event: EventEnvelope, history: RunHistory) -> Decision:
    """Accept a cancel once, and not for a run that is ending already."""
    return DELIVER if (history.stop or history.compensation) is None else SKIP


def _judge_resolution(event: EventEnvelope, history: RunHistory) -> Decision:
    """Accept a decision about an unknown outcome once, while the outcome waits for one."""
    refused = decision_refusal(history, event.payload)
    if refused is None:
        return DELIVER
    return SKIP if refused.late else _invalid("payload", refused.reason)


def _judge_report(event: EventEnvelope, history: RunHistory) -> Decision:
    """Accept an outcome of a call once, from the process that made the call, while nobody has decided."""
    requested = history.requested.get(event.payload["effect_id"])
    if requested is None and event.payload["outcome"] == "not_begun":
        return SKIP  # its intent has not reached the log either
    if requested is None:
        return _invalid("payload.effect_id", "the run has no such effect")
    if requested.event_id == event.payload["intent_id"] and requested.producer != event.producer:
        return _invalid("producer", "the call was made by another process")
    return DELIVER if takes_report(history, event.payload) else SKIP


def _judge_answer(event: EventEnvelope, history: RunHistory) -> Decision:
    """Accept an answer once, from the provider that was chosen, to a call that was made."""
    call_id = event.payload.get("call_id")
    invoked = history.invoked.get(call_id or "")
    if invoked is None:
        return _invalid("payload.call_id", f"the run made no call {call_id}")
    if event.event_type != CALLS[invoked.event_type]:
        return _invalid("event_type", f"is no answer to {invoked.event_type}")
    if event.event_type == TaskCompleted.TYPE:
        return _judge_task_answer(event, history)
    chosen = invoked.payload["target_agent_id"]
    if event.payload.get("provider_agent_id") != chosen or event.producer.agent_id != chosen:
        return _invalid("payload.provider_agent_id", f"the call was made to {chosen}")
    return SKIP if call_id in history.answered or call_id in history.expired else DELIVER


def _judge_slice(event: EventEnvelope, history: RunHistory) -> Decision:
    """Accept what an account answers once, from its treasurer, to a request that is open."""
    if event.producer.agent_type != TREASURER:
        return _invalid("producer", f"is {event.producer.agent_type}; budgets are granted by {TREASURER}")
    return DELIVER if history.spending.slices.awaits(event.payload["request_id"]) else SKIP


def _judge_task_answer(event: EventEnvelope, history: RunHistory) -> Decision:
    """Accept the first answer to a task: nobody was chosen, so whoever offers the capability may answer.

    Who has taken it cannot be known here; a policy says who may offer anything at all (see `_ruling`).
    """
    payload = event.payload
    if payload.get("provider_agent_id") != event.producer.agent_id:
        return _invalid("payload.provider_agent_id", f"is not {event.producer.agent_id}, who sends it")
    if payload["task_id"] != payload["call_id"]:
        return _invalid("payload.task_id", f"is not {payload['call_id']}, the call that it answers")
    ended = payload["call_id"] in history.answered or payload["call_id"] in history.expired
    return SKIP if ended else DELIVER


def _judge_approval(event: EventEnvelope, history: RunHistory) -> Decision:
    """Accept an answer of each person once, to a question that was asked, if the question allows it.

    Who approved may still reject, as long as others have to approve as well. Who answers a
    closed question has done nothing wrong, and is skipped, whatever the answer that counts says.
    """
    answer, approval_id = event.payload, event.payload["approval_id"]
    if approval_id not in history.approvals:
        return _invalid("payload.approval_id", f"the run asked no question {approval_id}")
    earlier = history.answers.get(approval_id, ())
    if any(event.event_id == one.event_id for one in earlier):
        return SKIP
    closed = history.closed.get(approval_id)
    problem = _problem(answer, history, None, earlier=() if closed is not None else earlier)
    if problem is not None:
        return _invalid(f"payload.{problem.field}", problem.reason)
    if closed is not None:
        return Decision(Action.SKIP, _came_late(answer, closed))
    again = any(one.payload["answered_by"] == answer["answered_by"] for one in earlier)
    return SKIP if again and answer["approved"] else DELIVER


def _came_late(answer: Mapping[str, Any], closed: EventEnvelope) -> str:
    when = to_rfc3339(closed.timestamp_ms)
    if closed.event_type == ApprovalAnswered.TYPE:
        first = f"{closed.payload['answered_by']} has answered it at {when}, and the first answer counts"
    else:
        first = f"its deadline passed at {when}"
    said = "yes" if answer["approved"] else "no"
    return f"{answer['answered_by']} said {said} to the question {answer['approval_id']} too late: {first}"


def _invalid(field: str, reason: str) -> Decision:
    return _refuse(EventValidationError(field, reason))


def _refuse(error: NoesiumError) -> Decision:
    return Decision(Action.DEAD_LETTER, error=error)


_FOR_OPEN_RUNS: Final = {
    "run.signalled": _judge_signal,
    "run.cancel.requested": _judge_cancel,
    **dict.fromkeys(ANSWERS, _judge_answer),
    "approval.answered": _judge_approval,
    "effect.reported": _judge_report,
    "effect.resolved": _judge_resolution,
    **dict.fromkeys(SLICE_ANSWERS, _judge_slice),
}


_RIGHTS: Final[dict[str, Right]] = {
    PartitionOutgrown.TYPE: "grow",
    "run.signalled": "signal",
    "run.cancel.requested": "cancel",
    "approval.answered": "answer",
    "effect.resolved": "resolve",
    TaskCompleted.TYPE: "register",
}
"""What each request asks for; other answers and reports come from who was asked, and commands are judged when
they start."""

FOR_RUNS: Final = frozenset(_FOR_OPEN_RUNS)
"""Types of the inbox events that are sent to open runs."""
