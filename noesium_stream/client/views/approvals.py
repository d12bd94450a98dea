"""Questions of runs to people, folded from the log; finds the question that an answer is for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from noesium_stream.client.views.refused_records import refused_records
from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.clock import to_rfc3339
from noesium_stream.errors import (
    ApprovalClosedError,
    ApprovalError,
    CorruptRecordError,
    EventValidationError,
    RunEndedError,
)
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.event.rules.approval_answers import approver_of, is_complete, refusal_of
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.standard import ApprovalAnswered
from noesium_stream.event.trust.speaking import decider_of
from noesium_stream.log.generations import open_generations
from noesium_stream.log.port import EventLog, Position
from noesium_stream.log.topics import partition_of

_TYPES: Final = ("approval.requested", "approval.answered", "approval.expired", *ENDINGS)
_SHOWN: Final = 60
MOST_SHOWN: Final = 5
"""Most people whose names are given in a line."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """A run in the path from the root of a tree to a run."""

    agent_type: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Approval:
    """One question of a run.

    `status` is open, sent (an answer is in the inbox and no worker has accepted it yet), answered, expired,
    or ended (the run has ended without an answer). `answer_schema` is the JSON Schema of the answer's value.
    Without `approvers` anyone may answer; entries `role:NAME` are judged by the run's owner. With `minimum`
    so many people have to approve, of whom `approved_by` have; `requested_by` asked for the run, as far as it
    is known, and is not one of them. Times are milliseconds since the epoch. `path` has the runs from the
    root to this one where it was called by another run, as far as that was read; `root_run_id` is what the
    run itself says of its root.
    """

    run_id: str
    approval_id: str
    agent_type: str
    node: str
    question: Any
    fingerprint: str
    event_id: str
    asked_ms: int
    answer_schema: dict[str, Any] | None = None
    approvers: tuple[str, ...] = ()
    deadline_ms: int | None = None
    status: str = "open"
    closed_ms: int | None = None
    answered_by: str | None = None
    approved: bool | None = None
    value: Any = None
    minimum: int | None = None
    approved_by: tuple[str, ...] = ()
    requested_by: str | None = None
    root_run_id: str | None = None
    path: tuple[PathStep, ...] = ()

    def answer(self, approved: bool, value: Any, by: str) -> ApprovalAnswered:
        """Make the event that answers the question.

        Raises:
            ApprovalError: `by` may not answer it.
            EventValidationError: the value does not match the question's schema; the error names the field.
        """
        self._check_name(by, approved)
        event = ApprovalAnswered(
            run_id=self.run_id,
            approval_id=self.approval_id,
            fingerprint=self.fingerprint,
            approved=approved,
            value=value,
            answered_by=by,
        )
        problem = self.refusal(event.payload())
        if problem is not None:
            wanted = json.dumps(self.answer_schema, ensure_ascii=False)
            raise EventValidationError(
                problem.field,
                problem.reason,
                hint=f"The question {self.shown} wants a value like this: {wanted}",
            )
        return event

    def _check_name(self, by: str, approved: bool) -> None:
        if approver_of(self.asked, by, None) is None:
            raise ApprovalError(
                f"{by} may not answer the question {self.shown}: only {', '.join(self.approvers)}.",
                hint="Say who you are with --as NAME (`by` in a program).",
            )
        if self.minimum is not None and by == self.requested_by:
            raise ApprovalError(
                f"{by} asked for the run: the question {self.shown} is for others to answer.",
                hint=f"{self.needed}",
            )
        if approved and by in self.approved_by:
            raise ApprovalError(f"{by} has approved the question {self.shown} already.", hint=self.needed)

    def may_be_answered_by(self, name: str, approved: bool) -> bool:
        """Whether somebody may give this answer, as far as that is known here; the owner judges roles."""
        try:
            self._check_name(name, approved)
        except ApprovalError:
            return False
        return True

    @property
    def asked(self) -> dict[str, Any]:
        """What an answer is judged by, as in `approval.requested`."""
        return {
            "fingerprint": self.fingerprint,
            "answer_schema": self.answer_schema,
            "approvers": list(self.approvers),
            "minimum": self.minimum,
        }

    @property
    def needed(self) -> str:
        """Return whose approval it waits for: `1 of 2 have approved (alice); ann or role:auditor may`."""
        who = " or ".join(name for name in self.approvers if name not in self.approved_by) or "anyone else"
        so_far = f" ({', '.join(self.approved_by)})" if self.approved_by else ""
        return f"{len(self.approved_by)} of {self.minimum or 1} have approved{so_far}; {who} may."

    def refusal(
        self, answer: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]] = ()
    ) -> EventValidationError | None:
        """Return why the owner would refuse an answer with this payload, as far as that is known here.

        `earlier` are the payloads of the answers that were accepted before.
        """
        return refusal_of(self.asked, answer, earlier, requested_by=self.requested_by)

    @property
    def shown(self) -> str:
        """Return the question as one short line."""
        return one_line(self.question)

    @property
    def is_shown_whole(self) -> bool:
        """Whether `shown` has all of the question, with the line breaks and spaces in it."""
        return self.shown == f'"{_text(self.question).strip()}"'


def one_line(question: Any) -> str:
    """Return a question as one short line, in quotes."""
    text = " ".join(_text(question).split())
    return f'"{text}"' if len(text) <= _SHOWN else f'"{text[: _SHOWN - 1]}…"'


def _text(question: Any) -> str:
    return question if isinstance(question, str) else json.dumps(question)


class Questions:
    """Fold of an agent type's questions and their status, over its journal and then its inbox."""

    def __init__(self, agent_type: str) -> None:
        self.ended: dict[str, str] = {}
        self._answers: dict[tuple[str, str], list[EventEnvelope]] = {}
        self._refused: dict[str, str] = {}
        self._requested_by: dict[str, str] = {}
        self._agent_type = agent_type
        self._found: dict[tuple[str, str], Approval] = {}

    def all(self) -> list[Approval]:
        """Return all questions, in the order of asking."""
        return [
            replace(found, status="ended")
            if found.run_id in self.ended and found.status in ("open", "sent")
            else found
            for found in self._found.values()
        ]

    def take_journal(self, event: EventEnvelope) -> None:
        """Fold the next event of the journal."""
        payload = event.payload
        if event.event_type in COMMANDS:
            self._requested_by.setdefault(payload["run_id"], decider_of(event))
            return
        if event.event_type in ENDINGS:
            self.ended.setdefault(payload["run_id"], ENDINGS[event.event_type])
            return
        key = payload["run_id"], payload["approval_id"]
        if event.event_type == "approval.requested":
            requested_by = self._requested_by.get(payload["run_id"])
            self._found.setdefault(key, _asked(event, self._agent_type, requested_by))
            return
        found = self._found.get(key)
        if found is None or found.status != "open":
            return
        if event.event_type == "approval.expired":
            self._found[key] = replace(found, status="expired", closed_ms=event.timestamp_ms)
        else:
            self._take_answer(found, event, "answered")

    def take_inbox(self, event: EventEnvelope, refused: str | None = None) -> None:
        """Fold an answer in the inbox: the question is sent if the owner would accept the answer.

        `refused`: why the owner has refused it.
        """
        payload = event.payload
        if refused is not None:
            self._refused[event.event_id] = refused
            return
        found = self._found.get((payload["run_id"], payload["approval_id"]))
        if found is None or found.status != "open":
            return
        taken = self._answers.get((found.run_id, found.approval_id), [])
        if any(one.event_id == event.event_id for one in taken):
            return  # the journal has it already
        if payload["approved"] and payload["answered_by"] in found.approved_by:
            return
        problem = found.refusal(payload, [one.payload for one in taken])
        if problem is None:
            self._take_answer(found, event, "sent")
        else:
            self._refused[event.event_id] = f"{problem.field} {problem.reason}"

    def _take_answer(self, found: Approval, event: EventEnvelope, status: str) -> None:
        key = found.run_id, found.approval_id
        taken = self._answers.setdefault(key, [])
        taken.append(event)
        answers = [one.payload for one in taken]
        approved_by = tuple(dict.fromkeys(one["answered_by"] for one in answers if one["approved"]))
        self._found[key] = found = replace(found, approved_by=approved_by)
        if is_complete(found.asked, answers):
            self._found[key] = _answered(found, status, event)

    def require_counted(self, question: Approval, answer_id: str, now_ms: int) -> None:
        """Check that the answer whose event has this id counts.

        Of answers that race the first in the inbox counts; what the journal has goes before that.

        Raises:
            ApprovalClosedError: another one counts (whose and since when), or the deadline has passed.
            ApprovalError: the owner refuses it.
        """
        if answer_id in self._refused:
            raise ApprovalError(
                f"The answer to the question {question.shown} does not count: {self._refused[answer_id]}."
            )
        key = question.run_id, question.approval_id
        counts = any(one.event_id == answer_id for one in self._answers.get(key, ()))
        if not counts and key in self._found:
            _refuse_closed(self._found[key], now_ms)


async def read_questions(log: EventLog, agent_type: str, run_id: str | None = None) -> Questions:
    """Read all questions of an agent type's runs, or of one run.

    Raises:
        LogUnavailableError, CorruptRecordError
    """
    questions = Questions(agent_type)
    refused: dict[Position, str] | None = None
    found = await open_generations(log, agent_type)
    of_journal = _TYPES if run_id is None else (*_TYPES, *COMMANDS)
    journals = {generation.journal: of_journal for generation in found}
    # An answer may be in the inbox of an earlier generation than its question.
    inboxes = {generation.inbox: ("approval.answered",) for generation in found}
    for topic, types in (journals | inboxes).items():
        until = await log.end(topic)
        if run_id is not None:
            partition = partition_of(run_id, len(until))
            until = {partition: until[partition]}
        async for record in log.read(topic, {}, until=until, types=types):
            if run_id is not None and record.key != run_id:
                continue
            if topic in journals:
                try:
                    questions.take_journal(record.unchecked)
                except WRONG as error:
                    pass_over(record, error)
                continue
            if refused is None:
                refused = await refused_records(log, agent_type, run_id)
            try:
                event = record.envelope
            except CorruptRecordError:
                continue  # its owner makes it a dead letter
            questions.take_inbox(event, refused.get(Position(topic, record.partition, record.offset)))
    return questions


def question_to_answer(
    questions: Questions, agent_type: str, run_id: str, approval_id: str | None, now_ms: int
) -> Approval:
    """Find the question that an answer is for: by id or a prefix of it, or the only open one.

    Raises:
        RunEndedError: the run has ended.
        ApprovalClosedError: the question was answered already (by whom and when), or its deadline has passed.
        ApprovalError: no question is open, several are, or none has this id.
    """
    if run_id in questions.ended:
        raise RunEndedError(
            f"Run {run_id} has ended already: {questions.ended[run_id]}.", hint=f"See: noesium show {run_id}"
        )
    found = questions.all()
    if approval_id is not None:
        found = [question for question in found if question.approval_id.startswith(approval_id)]
        if not found:
            raise ApprovalError(
                f"Run {run_id} of {agent_type} has asked no question {approval_id}.", hint=_LIST
            )
    still_open = [question for question in found if question.status == "open"]
    if len(still_open) > 1:
        raise ApprovalError(
            f"Run {run_id} has {len(still_open)} open questions: say which.",
            hint="\n".join(f"{question.approval_id}  {question.shown}" for question in still_open),
        )
    if not found:
        raise ApprovalError(f"Run {run_id} of {agent_type} asks nothing now.", hint=_LIST)
    question = still_open[0] if still_open else found[-1]
    _refuse_closed(question, now_ms)
    return question


def open_ones(found: Iterable[Approval]) -> list[Approval]:
    """Select the questions that wait for an answer, or for a worker to accept it; oldest first."""
    waiting = [question for question in found if question.status in ("open", "sent")]
    return sorted(waiting, key=lambda question: question.asked_ms)


_LIST: Final = "`noesium approvals` lists what is asked."


def _refuse_closed(question: Approval, now_ms: int) -> None:
    answered = "approved" if question.approved else "rejected"
    when = to_rfc3339(question.closed_ms or 0)
    if question.status == "sent":
        raise ApprovalClosedError(
            f"The question {question.shown} was {answered} by {question.answered_by} at {when}.",
            hint="No worker has taken the answer up yet; it waits on the log, and the first one counts.",
        )
    if question.status == "answered":
        raise ApprovalClosedError(
            f"The question {question.shown} was {answered} by {question.answered_by} at {when}.",
            hint="The first answer counts.",
        )
    deadline_ms = question.deadline_ms
    if question.status == "expired" or (deadline_ms is not None and deadline_ms <= now_ms):
        raise ApprovalClosedError(
            f"The deadline of the question {question.shown} passed at {to_rfc3339(deadline_ms or 0)}.",
            hint="The run goes on without an answer.",
        )


def _asked(event: EventEnvelope, agent_type: str, requested_by: str | None) -> Approval:
    payload = event.payload
    approvers: Sequence[str] = payload.get("approvers") or ()
    return Approval(
        run_id=payload["run_id"],
        approval_id=payload["approval_id"],
        agent_type=agent_type,
        node=payload["node"],
        question=payload["question"],
        fingerprint=payload["fingerprint"],
        event_id=event.event_id,
        asked_ms=event.timestamp_ms,
        answer_schema=payload.get("answer_schema"),
        approvers=tuple(approvers),
        deadline_ms=payload.get("deadline_ms"),
        minimum=payload.get("minimum"),
        requested_by=requested_by,
        root_run_id=event.correlation_id,
    )


def _answered(question: Approval, status: str, event: EventEnvelope) -> Approval:
    payload = event.payload
    return replace(
        question,
        status=status,
        closed_ms=event.timestamp_ms,
        answered_by=payload["answered_by"],
        approved=payload["approved"],
        value=payload.get("value"),
    )
