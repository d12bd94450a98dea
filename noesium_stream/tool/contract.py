"""The schemas that a tool or a skill promises: checked when it is made, and values against them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noesium_stream.errors import ConfigError, EventValidationError, ToolError
from noesium_stream.event.payload.judge import first_line, judge_of


def check_schemas(
    owner: str, input_schema: Mapping[str, Any], output_schema: Mapping[str, Any] | None
) -> None:
    """Check that the schemas of `owner`, such as "the tool refund", can be used.

    Raises:
        ConfigError: one cannot.
    """
    for what, schema in (("input", input_schema), ("output", output_schema)):
        if schema is None:
            continue
        try:
            judge_of(schema)
        except ValueError as error:
            raise ConfigError(f"The {what} schema of {owner} cannot be used: {first_line(error)}") from None


def check_value(name: str, what: str, value: Any, schema: Mapping[str, Any], kind: type[ToolError]) -> None:
    """Check a value, such as the arguments of the tool `name`, against a schema.

    Raises:
        ToolError: of this kind; names the first field that is wrong.
    """
    try:
        judge_of(schema).check(value, what)
    except EventValidationError as error:
        raise kind(f"{name}: {error.field} {error.reason}.") from None
    except ValueError as error:
        raise kind(f"{name}: the {what} cannot be judged: {first_line(error)}") from None
