"""The expected answer to a question to a person, and the answer that the node receives."""

from __future__ import annotations

import json
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import typing_extensions
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from noesium_stream.errors import ConfigError, EventValidationError, KernelError, StateError
from noesium_stream.event.payload.schema import refuse_remote_references
from noesium_stream.event.payload.value import copied, to_json
from noesium_stream.event.rules.approval_answers import answer_value, check_schema

APPROVE: Final = "approve"
REJECT: Final = "reject"
TIMEOUT: Final = "timeout"
_NO: Final = (REJECT, "decline")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, always in this form.

    Attributes:
        approved: whether the question was approved.
        decision: `approve` or `reject`; the word in `on_timeout` if nobody answered in time (`timeout` if
            that is not a text).
        value: the value in the answer, as an instance of the question's `schema` if that is a class. Without
            a value and a schema it is True or False, as `approved` is; None if a rejection came without a
            value.
        answered_by: the name of the person, the last one of several; None: nobody answered before the
            deadline.
        approved_by: the names of all who approved, in order.
    """

    approved: bool
    decision: str
    value: Any
    answered_by: str | None
    approved_by: tuple[str, ...] = ()

    @property
    def expired(self) -> bool:
        """Whether nobody answered before the deadline."""
        return self.answered_by is None


class AnswerType:
    """The `schema` of a question: a JSON Schema, a pydantic model, a dataclass, a TypedDict, or none.

    Raises:
        StateError: it is none of these, or not a valid JSON Schema 2020-12.
    """

    def __init__(self, schema: Any) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        self._name = getattr(schema, "__name__", "the schema")
        self.json_schema: dict[str, Any] | None = None
        if schema is None:
            return
        try:
            if isinstance(schema, Mapping):
                self.json_schema = to_json(schema, "schema")
            else:
                self._adapter = TypeAdapter(readable_schema(schema))
                self.json_schema = self._adapter.json_schema()
            refuse_remote_references(self.json_schema)
            check_schema(self.json_schema or {})
        except (PydanticSchemaGenerationError, PydanticUserError, ConfigError, ValueError) as error:
            raise StateError(
                f"The schema of a question cannot be used: {str(error).splitlines()[0]}",
                hint="Give a pydantic model, a dataclass, a TypedDict or a JSON Schema.",
            ) from None

    def check_decision(self, decision: Any) -> None:
        """Refuse an `on_timeout` that the question itself would not accept.

        Raises:
            StateError: it is not valid against the schema.
        """
        try:
            _taken(self.json_schema, decision)
        except EventValidationError as error:
            raise StateError(
                f"on_timeout is {decision!r}, which the question's schema refuses: {error.message}",
                hint='Give a value that it takes, or "reject".',
            ) from None

    def answered(
        self, asked: Mapping[str, Any], answer: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]
    ) -> Answer:
        """The answer in these payloads of `approval.requested` and `approval.answered`; `answers` are all."""
        approved = answer["approved"]
        value = answer_value(asked["answer_schema"], approved, answer["value"])
        decision = APPROVE if approved else REJECT
        names = dict.fromkeys(one["answered_by"] for one in answers if one["approved"])
        return Answer(approved, decision, self._instance(value), answer["answered_by"], tuple(names))

    def expired(self, asked: Mapping[str, Any], decision: Any) -> Answer:
        """The substitute for an answer that did not come in time."""
        approved, value = _taken(asked["answer_schema"], decision)
        text = decision if isinstance(decision, str) else TIMEOUT
        return Answer(approved, text, self._instance(value), None)

    def _instance(self, value: Any) -> Any:
        if self._adapter is None or value is None:
            return copied(value)
        try:
            return self._adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(("value", *map(str, first["loc"])))
            raise KernelError(
                f"The answer is not what {self._name} takes: {path}: {first['msg']}.",
                hint="Answers are judged by the JSON Schema that was recorded with the question; what the "
                "class asks beyond it is found out only here.",
            ) from None


def _taken(schema: Mapping[str, Any] | None, decision: Any) -> tuple[bool, Any]:
    """Whether `on_timeout` approves, and its value: a command word is a value only if the schema says so."""
    if isinstance(decision, str) and decision in (APPROVE, *_NO):
        approved = decision == APPROVE
        try:
            if schema is not None:
                return approved, answer_value(schema, approved, decision)
        except EventValidationError:
            pass
        return approved, answer_value(schema, approved, None)
    return False, answer_value(schema, False, decision)


def readable_schema(schema: Any) -> Any:
    """The schema in a form for pydantic, which reads `typing.TypedDict` only from Python 3.12 on."""
    if sys.version_info >= (3, 12) or not typing.is_typeddict(schema):
        return schema
    fields = {}
    for name, kind in typing.get_type_hints(schema, include_extras=True).items():
        if typing.get_origin(kind) in (typing.Required, typing.NotRequired):
            (kind,) = typing.get_args(kind)
        fields[name] = kind if name in schema.__required_keys__ else typing_extensions.NotRequired[kind]
    return typing_extensions.TypedDict(schema.__name__, fields)  # type: ignore[operator]
