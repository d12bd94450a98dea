"""The state of one run, as a fold over its journal: for servers that show runs to others.

A cursor is `OFFSET.N`: the offset of a record in the run's journal partition, and the number of the change
among those that the record makes. Whoever has seen the changes up to a cursor goes on behind it, at any
server process.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeVar

from noesium_stream.errors import EventValidationError
from noesium_stream.escapes import escaped_json
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import COMMANDS, caller_of
from noesium_stream.event.rules.approval_answers import is_complete
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.redaction import redacted

MOST_TALK: Final = 100
"""Questions and answers that are kept, beside the command."""
MOST_TEXT: Final = 2_000
"""Characters of a text about a failure or a question."""
_MORE: Final = " … (there is more of it)"
_SOME_QUESTION: Final = "The run asks a question."

ChangeT = TypeVar("ChangeT")
Made = Literal["result", "status"]
"""What a change is about."""


class Status(StrEnum):
    """What a run does, as its requester sees it."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


TERMINAL: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.REJECTED})

ASKED: Final = "approval.requested"
ANSWERED: Final = "approval.answered"
EXPIRED: Final = "approval.expired"
SIGNALLED: Final = "run.signalled"
DONE: Final = "kernel.node.completed"
TYPES: Final = (*COMMANDS, "run.started", ASKED, ANSWERED, EXPIRED, SIGNALLED, DONE, *ENDINGS)
"""Event types that the fold takes; it ignores others."""

_END_STATUS: Final = {
    "run.failed": Status.FAILED,
    "run.cancelled": Status.CANCELLED,
    "command.expired": Status.FAILED,
    "command.refused": Status.REJECTED,
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


@dataclass(slots=True)
class RunFold(ABC, Generic[ChangeT]):
    """One run that somebody has started through a server; `take` folds the next record of its journal.

    Attributes:
        task_id: by which its requester names it: see `runs`.
        command: the command that the run was started with; None: not read yet.
        offset: of the last record that was folded, in the run's journal; -1: there is none.
        cursor: of the last change.
        answers: idempotency keys of the answers and signals that the journal has.
        talk: the last questions, answers and messages.
        error_type: class of the error that the run ended with; None: it has none.
        channel: the field of a command's metadata in which the server wrote what was asked for; it also
            begins the idempotency keys of answers and signals, before a space.
    """

    channel: ClassVar[str]

    task_id: str
    run_id: str
    agent_type: str
    command: EventEnvelope | None = None
    status: Status = Status.SUBMITTED
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
    error_type: str | None = None
    _given: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self.status in TERMINAL

    @property
    def answer_key(self) -> str:
        """What begins the idempotency key of an answer or a signal."""
        return f"{self.channel} "

    def said(self, name: str) -> str | None:
        """Return a text that the server wrote into the metadata of the command."""
        metadata = {} if self.command is None else self.command.metadata.get(self.channel)
        found = metadata.get(name) if isinstance(metadata, dict) else None
        return found if isinstance(found, str) else None

    @abstractmethod
    def made(self, what: Made) -> ChangeT:
        """Describe the change that was made last, for the caller of `take`."""

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
        self._set(Status.REJECTED, redacted(reason)[:MOST_TEXT])

    def take(self, event: EventEnvelope, offset: int) -> Iterator[ChangeT]:
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
            yield self.made(made)

    def _changes(self, event: EventEnvelope) -> Iterator[Made]:
        """Change the state; yield `result` or `status` after each change."""
        kind, payload = event.event_type, event.payload
        if kind == "run.completed":
            self.result, self.has_result, self.about = payload.get("result"), True, {}
            yield "result"
            yield self._set(Status.COMPLETED)
        elif kind in _END_STATUS:
            self.questions.clear()
            self.error_type = payload.get("error_type")
            yield self._set(_END_STATUS[kind], _reason(kind, payload))
        elif kind == DONE:
            if self.status != Status.INPUT_REQUIRED:
                about = {"node": payload.get("node"), "step": payload.get("step")}
                yield self._set(Status.WORKING, about=about)
        elif kind in _OF_QUESTIONS:
            before = dict(self.questions)
            _OF_QUESTIONS[kind](self, event)
            if self.questions != before or kind == ANSWERED:
                yield self._waits()
        elif kind == SIGNALLED:
            if event.idempotency_key is not None and event.idempotency_key.startswith(self.answer_key):
                self.answers.add(event.idempotency_key)
                self.talk.append(event)
        elif kind == "run.started":
            yield self._set(Status.WORKING)

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

    def _waits(self) -> Made:
        if not self.questions:
            return self._set(Status.WORKING)
        shown = [shown_question(question["question"]) for question in self.questions.values()]
        return self._set(Status.INPUT_REQUIRED, "\n".join(shown))

    def _set(self, status: Status, text: str = "", about: dict[str, Any] | None = None) -> Made:
        self.status, self.text, self.about = status, text, about or {}
        return "status"


_OF_QUESTIONS: Final[Mapping[str, Callable[[RunFold[Any], EventEnvelope], None]]] = {
    ASKED: RunFold._asked,
    ANSWERED: RunFold._answered,
    EXPIRED: RunFold._expired,
}


def shown_question(question: Any) -> str:
    """Return a question as one text."""
    if isinstance(question, str):
        return redacted(question)[:MOST_TEXT]
    if not isinstance(question, dict):
        return _SOME_QUESTION
    tool, arguments, found = (question.get(name) for name in ("tool", "arguments", "question"))
    if isinstance(tool, str) and isinstance(arguments, dict):
        shown = escaped_json(json.dumps(arguments, ensure_ascii=False))
        return _cut(redacted(f"May {tool} be called with {shown}?"))
    return found[:MOST_TEXT] if isinstance(found, str) else _SOME_QUESTION


def _cut(text: str) -> str:
    """A text that says so if it is cut: who approves has to know that there is more."""
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - len(_MORE)]}{_MORE}"


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
