"""Messages from others: one without a task begins a run; one with a task answers what its run asks, or is a
signal to it.

A message is told by its id and its sender: sent again, it finds the run that it began, or the answer that it
was, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from a2a.types import Message, Role, SendMessageRequest
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict

from noesium_stream.a2a.journals import Tasks
from noesium_stream.a2a.parts import single_value, text_in
from noesium_stream.a2a.tasks import ANSWER_KEY, METADATA, SIGNAL, TaskFold
from noesium_stream.client import Client, Run
from noesium_stream.errors import EventValidationError
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.rules.agent_calls import input_of
from noesium_stream.serving.offers import Offer, Offers
from noesium_stream.serving.runs import task_id_of

MOST_ID: Final = 256
"""Characters of the ids that a client makes up."""
YES: Final = ("approve", "approved", "yes")
NO: Final = ("reject", "rejected", "no")
"""Texts that answer a question."""

Taken = tuple[Run, TaskFold, str | None]
"""A run, its task, and the idempotency key of the answer or signal that a message was."""


class Messages:
    """Takes messages.

    Args:
        tasks: the tasks on the log.
        offers: the skills that are open to others.
        client: gives the client of a requester, by name.
    """

    def __init__(self, tasks: Tasks, offers: Offers, client: Callable[[str], Client]) -> None:
        self._tasks = tasks
        self._offers = offers
        self._client = client

    async def take(self, params: SendMessageRequest, requester: str) -> Taken:
        """Begin a run with a message, answer a question of one, or signal it.

        Raises:
            A2AError: the message cannot be taken.
            EventValidationError: a field of it is wrong.
            NoesiumError: as `Client.start`, `Run.approve` and `Offers.choose`.
        """
        message = params.message
        _check(params)
        if message.task_id:
            return await self._answer(message, requester)
        return await self._begin(params, requester)

    async def _begin(self, params: SendMessageRequest, requester: str) -> Taken:
        message = params.message
        skill, version = _choice(params)
        met = await self._met(message, skill, requester)
        if met is not None:
            return met
        offer = await self._offers.choose(skill, version)
        given, text_field = _input(message, offer)
        said = {
            "message_id": message.message_id,
            "context_id": message.context_id or None,
            "skill": offer.skill,
            "text_field": text_field,
        }
        run = await self._client(requester).start(
            offer.agent_type,
            given,
            idempotency_key=_key(message),
            capability=None if offer.capability is None else offer.capability.id,
            metadata={METADATA: {name: value for name, value in said.items() if value is not None}},
        )
        run, fold = await self._tasks.find(task_id_of(run.agent_type, run.id), requester)
        _check_same(message, offer.skill, fold)
        return run, fold, None

    async def _met(self, message: Message, skill: str | None, requester: str) -> Taken | None:
        """Find the task that a message has begun before, also if another agent would be chosen by now."""
        met = await self._tasks.started(await self._offers.types(skill), _key(message), requester)
        if met is None:
            return None
        run, fold = met
        _check_same(message, skill, fold)
        return run, fold, None

    async def _answer(self, message: Message, requester: str) -> Taken:
        run, fold = await self._tasks.find(message.task_id, requester)
        if message.context_id and message.context_id != fold.context_id:
            raise InvalidParamsError("message.context_id is not that of the task.")
        key = _key(message)
        if message.message_id == fold.message_id:
            return run, fold, None  # the message that began it
        if key in fold.answers or await _is_sent(run, key, requester):
            return run, fold, key
        if fold.ended:
            raise UnsupportedOperationError("The task has ended and takes no more messages.")
        if not fold.questions:
            await run.signal(SIGNAL, single_value(message), idempotency_key=key)
            return run, fold, key
        question_id = _question_id(message, fold)
        approved, value = _decision(message, fold.questions[question_id])
        answer = run.approve if approved else run.reject
        await answer(question_id, value=value, by=requester, idempotency_key=key)
        return run, fold, key


async def _is_sent(run: Run, key: str, requester: str) -> bool:
    async for event in run.requests(("approval.answered", "run.signalled")):
        if event.idempotency_key == key and event.producer.agent_id == requester:
            return True
    return False


def _key(message: Message) -> str:
    """Return the idempotency key of a message."""
    return ANSWER_KEY + message.message_id


def _check_same(message: Message, skill: str | None, fold: TaskFold) -> None:
    """Refuse a message that has begun a task with another content or skill.

    Raises:
        InvalidParamsError: the message differs.
    """
    given = single_value(message)
    if isinstance(given, str) and fold.text_field is not None:
        given = {fold.text_field: given}
    asked = {} if fold.command is None else input_of(fold.command.payload)
    if canonical_json(asked) != canonical_json(to_json(given, "input")):
        raise InvalidParamsError(f"The message {message.message_id} had another content before.")
    if skill not in (None, fold.skill):
        raise InvalidParamsError(f"The message {message.message_id} was for the skill {fold.skill}.")


def _check(params: SendMessageRequest) -> None:
    message = params.message
    if params.configuration.HasField("task_push_notification_config"):
        raise PushNotificationNotSupportedError
    if message.role != Role.ROLE_USER:
        raise InvalidParamsError("message.role is ROLE_USER: the server speaks for the agent.")
    for name in ("message_id", "context_id"):
        value: str = getattr(message, name)
        if len(value) > MOST_ID or not value.isprintable():
            raise EventValidationError(f"message.{name}", f"has more than {MOST_ID} visible characters")
    for part in message.parts:
        if part.WhichOneof("content") in ("raw", "url"):
            raise ContentTypeNotSupportedError("Only text and data are taken, no files and no URLs.")


def _choice(params: SendMessageRequest) -> tuple[str | None, str | None]:
    """Return skill and version that are asked for, from the metadata of the message, or else the request."""
    found = {**MessageToDict(params.metadata), **MessageToDict(params.message.metadata)}
    for name in ("skill", "version"):
        if name in found and not isinstance(found[name], str):
            raise EventValidationError(f"message.metadata.{name}", "is no text")
    return found.get("skill"), found.get("version")


def _input(message: Message, offer: Offer) -> tuple[dict[str, Any], str | None]:
    """Return the input of a run, and the field of it that the text of the message became."""
    given = single_value(message)
    if text_in(message.parts) is None:
        return offer.check(given), None
    name = offer.text_field
    if name is None:
        raise EventValidationError(
            "message.parts",
            f"are text, and the input of {offer.skill} is not one text: send one part of data, a JSON object",
        )
    return offer.check({name: given}), name


def _question_id(message: Message, fold: TaskFold) -> str:
    wanted = MessageToDict(message.metadata).get("question_id")
    if wanted is None and len(fold.questions) == 1:
        return next(iter(fold.questions))
    if not isinstance(wanted, str) or wanted not in fold.questions:
        raise EventValidationError(
            "message.metadata.question_id",
            f"says which question is meant: {', '.join(list(fold.questions)[:10])}",
        )
    return wanted


def _decision(message: Message, asked: dict[str, Any]) -> tuple[bool, Any]:
    """Return what a message decides, and its value.

    A text that is neither yes nor no is a value for a question that wants a text, and nothing else: one that
    somebody has to approve is not approved by any words.
    """
    given = single_value(message)
    if isinstance(given, dict) and isinstance(given.get("approved"), bool) and given.keys() <= _ANSWER:
        return given["approved"], given.get("value")
    if isinstance(given, str):
        word = given.strip().lower()
        if (asked.get("answer_schema") or {}).get("type") == "string":
            return True, given
        if word in YES or word in NO:
            return word in YES, None
    raise EventValidationError(
        "message.parts",
        f"are no answer: send {YES[0]} or {NO[0]} as a text, or the data "
        '{"approved": true or false, "value": what the question wants}',
    )


_ANSWER: Final = frozenset({"approved", "value"})
