"""A2A tasks as a fold over the journals of runs: state, artifacts and stream events, each with its cursor.

A cursor is `OFFSET.N`: the offset of a record in the run's journal partition, and the number of the event
among those that the record makes. Whoever has seen the events up to a cursor goes on behind it, at any server
process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.timestamp_pb2 import Timestamp

from noesium_stream.a2a.parts import TEXT_TYPE, part_of, to_struct
from noesium_stream.clock import derived_id
from noesium_stream.errors import EventValidationError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import COMMANDS, caller_of, input_of
from noesium_stream.event.rules.approval_answers import is_complete
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.redaction import redacted

METADATA: Final = "a2a"
"""Field of a command's metadata that says what the message was."""
ARTIFACT_ID: Final = "result"
MOST_TALK: Final = 100
"""Questions and answers of a task's history, beside its first message."""
ANSWER_KEY: Final = "a2a "
"""Begins the idempotency key of an answer or a signal; the id of its message follows."""
SIGNAL: Final = "message"
"""The signal that a message is to a run that asks nothing."""
MOST_TEXT: Final = 2_000
"""Characters of a text about a failure or a question."""

TERMINAL: Final = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)
INTERRUPTED: Final = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED})

_ASKED: Final = "approval.requested"
_ANSWERED: Final = "approval.answered"
_EXPIRED: Final = "approval.expired"
_SIGNALLED: Final = "run.signalled"
_DONE: Final = "kernel.node.completed"
TYPES: Final = (*COMMANDS, "run.started", _ASKED, _ANSWERED, _EXPIRED, _SIGNALLED, _DONE, *ENDINGS)
"""Event types that the fold takes; it ignores others."""

_END_STATES: Final = {
    "run.failed": TaskState.TASK_STATE_FAILED,
    "run.cancelled": TaskState.TASK_STATE_CANCELED,
    "command.expired": TaskState.TASK_STATE_FAILED,
    "command.refused": TaskState.TASK_STATE_REJECTED,
}


class Cursor(NamedTuple):
    """A position in the events of one task; see the module."""

    offset: int
    number: int

    def __str__(self) -> str:
        return f"{self.offset}.{self.number}"


BEGINNING: Final = Cursor(-1, 0)
"""Before the first record of the journal."""


def parse_cursor(text: str) -> Cursor:
    """Parse a cursor of a stream event.

    Raises:
        EventValidationError: it is none.
    """
    offset, dot, number = text.partition(".")
    if not (dot and len(text) <= 40 and text.isascii() and offset.isdigit() and number.isdigit()):
        raise EventValidationError("Last-Event-ID", "is no cursor of a task's stream: OFFSET.N")
    return Cursor(int(offset), int(number))


class Change(NamedTuple):
    """One change of a task, and the position behind it."""

    cursor: Cursor
    event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent


@dataclass(slots=True)
class TaskFold:
    """The task of one run; `take` folds the next record of its journal.

    Attributes:
        task_id: id of the task.
        command: the command that the run was started with; None: not read yet.
        offset: of the last record that was folded, in the run's journal; -1: there is none.
        cursor: of the last change.
        answers: idempotency keys of the answers and signals that the journal has.
        talk: the last questions, answers and messages.
    """

    task_id: str
    run_id: str
    agent_type: str
    command: EventEnvelope | None = None
    state: TaskState = TaskState.TASK_STATE_SUBMITTED
    offset: int = -1
    cursor: Cursor = BEGINNING
    changed_ms: int = 0
    about: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    result: Any = None
    has_result: bool = False
    questions: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: set[str] = field(default_factory=set)
    talk: deque[EventEnvelope] = field(default_factory=lambda: deque(maxlen=MOST_TALK))
    _given: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self.state in TERMINAL

    @property
    def context_id(self) -> str:
        """The context that the message named; else one of the task alone."""
        given = self._said("context_id")
        return given or derived_id("a2a context", self.run_id)

    @property
    def message_id(self) -> str:
        """The id of the message that began the task."""
        return self._said("message_id") or self.run_id

    @property
    def skill(self) -> str:
        """The skill that was asked for."""
        return self._said("skill") or self.agent_type

    @property
    def text_field(self) -> str | None:
        """The field of the input that the text of the message became."""
        return self._said("text_field")

    def _said(self, name: str) -> str | None:
        metadata = {} if self.command is None else self.command.metadata.get(METADATA)
        found = metadata.get(name) if isinstance(metadata, dict) else None
        return found if isinstance(found, str) else None

    def take_command(self, event: EventEnvelope) -> bool:
        """Take a command from inbox or journal; return whether it is the run's first one."""
        payload = event.payload
        if self.command is not None or payload.get("run_id") != self.run_id:
            return False
        if caller_of(payload) == self.run_id:
            return False  # a call by this run
        self.command, self.changed_ms = event, event.timestamp_ms
        return True

    def refuse(self, reason: str) -> None:
        """The owner has refused the command: it is a dead letter, and no run starts."""
        self._status(TaskState.TASK_STATE_REJECTED, redacted(reason)[:MOST_TEXT])

    def take(self, event: EventEnvelope, offset: int) -> Iterator[Change]:
        """Fold one record; yield each change right after it is made, for the caller to look at the task."""
        self.offset = offset
        if event.event_type in COMMANDS:
            if self.take_command(event):
                self.cursor = Cursor(offset, 0)
            return
        if self.ended or event.payload.get("run_id") != self.run_id:
            return
        for number, made in enumerate(self._changes(event)):
            self.cursor, self.changed_ms = Cursor(offset, number), event.timestamp_ms
            yield Change(self.cursor, self._event(made))

    def _changes(self, event: EventEnvelope) -> Iterator[str]:
        """Change the task; yield `artifact` or `status` after each change."""
        kind, payload = event.event_type, event.payload
        if kind == "run.completed":
            self.result, self.has_result, self.about = payload.get("result"), True, {}
            yield "artifact"
            yield self._status(TaskState.TASK_STATE_COMPLETED)
        elif kind in _END_STATES:
            self.questions.clear()
            yield self._status(_END_STATES[kind], _reason(kind, payload))
        elif kind == _DONE:
            if self.state != TaskState.TASK_STATE_INPUT_REQUIRED:
                about = {"node": payload.get("node"), "step": payload.get("step")}
                yield self._status(TaskState.TASK_STATE_WORKING, about=about)
        elif kind in _OF_QUESTIONS:
            before = dict(self.questions)
            _OF_QUESTIONS[kind](self, event)
            if self.questions != before or kind == _ANSWERED:
                yield self._waits()
        elif kind == _SIGNALLED:
            if event.idempotency_key is not None and event.idempotency_key.startswith(ANSWER_KEY):
                self.answers.add(event.idempotency_key)
                self.talk.append(event)
        elif kind == "run.started":
            yield self._status(TaskState.TASK_STATE_WORKING)

    def _asked(self, event: EventEnvelope) -> None:
        self.talk.append(event)
        self.questions[event.payload["approval_id"]] = event.payload

    def _answered(self, event: EventEnvelope) -> None:
        payload = event.payload
        self.talk.append(event)
        if event.idempotency_key is not None:
            self.answers.add(event.idempotency_key)
        asked = self.questions.get(payload["approval_id"])
        if asked is None:
            return
        given = self._given.setdefault(payload["approval_id"], [])
        given.append(payload)
        if is_complete(asked, given):
            del self.questions[payload["approval_id"]]

    def _expired(self, event: EventEnvelope) -> None:
        self.questions.pop(event.payload["approval_id"], None)

    def _waits(self) -> str:
        if not self.questions:
            return self._status(TaskState.TASK_STATE_WORKING)
        shown = [_shown(question["question"]) for question in self.questions.values()]
        return self._status(TaskState.TASK_STATE_INPUT_REQUIRED, "\n".join(shown))

    def _status(self, state: TaskState, text: str = "", about: dict[str, Any] | None = None) -> str:
        self.state, self.text, self.about = state, text, about or {}
        return "status"

    # -- as A2A has it -------------------------------------------------------------------------------

    def task(self) -> Task:
        """Return the task as it is now."""
        task = Task(
            id=self.task_id,
            context_id=self.context_id,
            status=self._proto_status(),
            metadata=to_struct({"noesium": self._labels()}),
        )
        if self.has_result:
            task.artifacts.append(self._artifact())
        if self.command is not None:
            task.history.append(self._first_message(self.command))
        task.history.extend(self._said_in(event) for event in self.talk)
        return task

    def _event(self, made: str) -> TaskStatusUpdateEvent | TaskArtifactUpdateEvent:
        metadata = to_struct({"noesium": self._labels()})
        if made == "artifact":
            return TaskArtifactUpdateEvent(
                task_id=self.task_id,
                context_id=self.context_id,
                artifact=self._artifact(),
                last_chunk=True,
                metadata=metadata,
            )
        return TaskStatusUpdateEvent(
            task_id=self.task_id, context_id=self.context_id, status=self._proto_status(), metadata=metadata
        )

    def _labels(self) -> dict[str, Any]:
        labels = {
            "run": self.run_id,
            "agent": self.agent_type,
            "skill": self.skill,
            "cursor": str(self.cursor) if self.cursor != BEGINNING else None,
            **self.about,
        }
        return {name: value for name, value in labels.items() if value is not None}

    def _proto_status(self) -> TaskStatus:
        status = TaskStatus(state=self.state, timestamp=_timestamp(self.changed_ms))
        parts = [Part(text=self.text, media_type=TEXT_TYPE)] if self.text else []
        parts += [part_of(_question(one)) for one in self.questions.values()]
        if parts:
            status.message.CopyFrom(
                self._message(derived_id(self.task_id, str(self.cursor)), Role.ROLE_AGENT, parts)
            )
        return status

    def _artifact(self) -> Artifact:
        return Artifact(artifact_id=ARTIFACT_ID, name=ARTIFACT_ID, parts=[part_of(self.result)])

    def _first_message(self, command: EventEnvelope) -> Message:
        given: Any = input_of(command.payload)
        if self.text_field is not None and isinstance(given.get(self.text_field), str):
            given = given[self.text_field]
        return self._message(self.message_id, Role.ROLE_USER, [part_of(given)])

    def _said_in(self, event: EventEnvelope) -> Message:
        """Return a question, an answer or a message as one of the history."""
        payload = event.payload
        if event.event_type == _ASKED:
            text = Part(text=_shown(payload["question"]), media_type=TEXT_TYPE)
            return self._message(event.event_id, Role.ROLE_AGENT, [text, part_of(_question(payload))])
        key = event.idempotency_key or ""
        message_id = key.removeprefix(ANSWER_KEY) if key.startswith(ANSWER_KEY) else event.event_id
        if event.event_type == _SIGNALLED:
            return self._message(message_id, Role.ROLE_USER, [part_of(payload.get("value"))])
        given = {"question_id": payload["approval_id"], "approved": payload["approved"]}
        given |= {} if payload.get("value") is None else {"value": payload["value"]}
        return self._message(message_id, Role.ROLE_USER, [part_of(given)])

    def _message(self, message_id: str, role: Role, parts: list[Part]) -> Message:
        return Message(
            message_id=message_id,
            role=role,
            task_id=self.task_id,
            context_id=self.context_id,
            parts=parts,
        )


_OF_QUESTIONS: Final = {
    _ASKED: TaskFold._asked,
    _ANSWERED: TaskFold._answered,
    _EXPIRED: TaskFold._expired,
}


def _question(asked: dict[str, Any]) -> dict[str, Any]:
    """What a client has to know to answer."""
    shown = {
        "question_id": asked["approval_id"],
        "question": asked["question"],
        "answer_schema": asked.get("answer_schema"),
        "approvers": asked.get("approvers") or None,
        "minimum": asked.get("minimum"),
        "deadline_ms": asked.get("deadline_ms"),
    }
    return {name: value for name, value in shown.items() if value is not None}


def _shown(question: Any) -> str:
    if isinstance(question, str):
        return redacted(question)[:MOST_TEXT]
    found = question.get("question") if isinstance(question, dict) else None
    return found[:MOST_TEXT] if isinstance(found, str) else "The run asks a question."


def _reason(kind: str, payload: dict[str, Any]) -> str:
    """Why a run ended without a result, in one text; without places in the code."""
    if kind == "run.cancelled":
        text = payload.get("reason") or "cancelled"
    elif kind == "command.expired":
        text = f"the message was {payload['age_ms']} ms old when its turn came"
    elif kind == "command.refused":
        text = payload["message"]
    else:
        text = f"{payload['error_type']}: {payload['message']}"
    return redacted(str(text))[:MOST_TEXT]


def _timestamp(ms: int) -> Timestamp:
    made = Timestamp()
    made.FromMilliseconds(max(0, ms))
    return made
