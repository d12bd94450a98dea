"""Judging a value by a JSON Schema that came from a log: bounded in time, and it loads nothing.

A schema is measured and compiled once, however many values it judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import jsonschema_rs
import orjson

from noesium_stream.errors import EventValidationError
from noesium_stream.event.payload.schema_cost import SchemaCost, schema_cost
from noesium_stream.event.payload.validator import PATTERNS, validator

MAX_MESSAGE: Final = 1_000
"""Characters of a field's path and of a reason."""

_KEPT: Final = 256


class Judge(NamedTuple):
    """A compiled schema, and what it costs."""

    validator: jsonschema_rs.Draft202012Validator
    cost: SchemaCost

    def check(self, value: Any, name: str) -> None:
        """Check a value that is called `name`.

        Raises:
            ValueError: to judge it may take too long.
            EventValidationError: it violates the schema; the field is its path from `name`.
        """
        self.cost.check(value)
        try:
            self.validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            path = [name, *(str(part) for part in error.instance_path)]
            reason = error.message
            if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
                path.append(str(error.kind.property))
                reason = "is missing"
            raise EventValidationError(".".join(path)[:MAX_MESSAGE], reason[:MAX_MESSAGE]) from None


def judge_of(schema: Mapping[str, Any]) -> Judge:
    """The judge of a schema.

    Raises:
        ValueError: it is no JSON Schema 2020-12, too large or too deep, or refers to what it does not hold.
    """
    try:
        return _judge(orjson.dumps(schema, option=orjson.OPT_SORT_KEYS))
    except orjson.JSONEncodeError as error:
        schema_cost(schema)  # it may be too deep
        raise ValueError(f"the schema is no JSON: {error}") from None


@lru_cache(maxsize=_KEPT)
def _judge(schema: bytes) -> Judge:
    loaded = orjson.loads(schema)
    cost = schema_cost(loaded)
    return Judge(validator(loaded, PATTERNS), cost)


def first_line(error: ValueError) -> str:
    """Why a schema cannot be used, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0][:MAX_MESSAGE]
