"""A2A tasks: runs as a fold over their journals, shown as state, artifacts and stream events with cursors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

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
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import input_of
from noesium_stream.serving import run_fold
from noesium_stream.serving.run_fold import (
    ASKED,
    BEGINNING,
    SIGNALLED,
    Cursor,
    Made,
    RunFold,
    Status,
    shown_question,
)

METADATA: Final = "a2a"
"""Field of a command's metadata that says what the message was."""
ARTIFACT_ID: Final = "result"
ANSWER_KEY: Final = f"{METADATA} "
"""Begins the idempotency key of an answer or a signal; the id of its message follows."""
SIGNAL: Final = "message"
"""The signal that a message is to a run that asks nothing."""

STATES: Final[Mapping[Status, TaskState]] = {
    Status.SUBMITTED: TaskState.TASK_STATE_SUBMITTED,
    Status.WORKING: TaskState.TASK_STATE_WORKING,
    Status.INPUT_REQUIRED: TaskState.TASK_STATE_INPUT_REQUIRED,
    Status.COMPLETED: TaskState.TASK_STATE_COMPLETED,
    Status.FAILED: TaskState.TASK_STATE_FAILED,
    Status.CANCELLED: TaskState.TASK_STATE_CANCELED,
    Status.REJECTED: TaskState.TASK_STATE_REJECTED,
}
TERMINAL: Final = frozenset(STATES[status] for status in run_fold.TERMINAL)
INTERRUPTED: Final = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED})


class Change(NamedTuple):
    """One change of a task, and the position behind it."""

    cursor: Cursor
    event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent


@dataclass(slots=True)
class TaskFold(RunFold[Change]):
    """The task of one run; see `RunFold`."""

    channel: ClassVar[str] = METADATA

    @property
    def state(self) -> TaskState:
        """The state of the task."""
        return STATES[self.status]

    @property
    def context_id(self) -> str:
        """The context that the message named; else one of the task alone."""
        given = self.said("context_id")
        return given or derived_id("a2a context", self.run_id)

    @property
    def message_id(self) -> str:
        """The id of the message that began the task."""
        return self.said("message_id") or self.run_id

    @property
    def skill(self) -> str:
        """The skill that was asked for."""
        return self.said("skill") or self.agent_type

    @property
    def text_field(self) -> str | None:
        """The field of the input that the text of the message became."""
        return self.said("text_field")

    def made(self, what: Made) -> Change:
        """See `RunFold`."""
        return Change(self.cursor, self._event(what))

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

    def _event(self, made: Made) -> TaskStatusUpdateEvent | TaskArtifactUpdateEvent:
        metadata = to_struct({"noesium": self._labels()})
        if made == "result":
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
        if event.event_type == ASKED:
            text = Part(text=shown_question(payload["question"]), media_type=TEXT_TYPE)
            return self._message(event.event_id, Role.ROLE_AGENT, [text, part_of(_question(payload))])
        key = event.idempotency_key or ""
        message_id = key.removeprefix(ANSWER_KEY) if key.startswith(ANSWER_KEY) else event.event_id
        if event.event_type == SIGNALLED:
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


def _timestamp(ms: int) -> Timestamp:
    made = Timestamp()
    made.FromMilliseconds(max(0, ms))
    return made
