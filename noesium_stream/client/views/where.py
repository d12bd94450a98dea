"""Conditions on runs and questions, `KEY=VALUE`: on who runs and who asked, and on fields of the input.

A key is one of `KEYS`, or a field of the run's input: `customer`, or `order.country` for one in another. With
`input.` before it a field is meant that has the name of a key. A text equals the value as it is; other values
equal it as JSON: `amount=7`, `urgent=true`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.rules.agent_calls import FAIRNESS_KEY, input_of
from noesium_stream.event.trust.speaking import principal_of

OF_INFO: Final = {"agent": "agent_type", "version": "agent_version", "parent": "parent_run_id"}
"""Keys that the summary of a run answers, and its fields."""

OF_COMMAND: Final = ("by", FAIRNESS_KEY)
"""Keys that the command answers: who asked for the run, and in whose turn it starts."""

KEYS: Final = (*OF_INFO, *OF_COMMAND)
_INPUT: Final = "input."

Conditions = Mapping[str, str]
"""Values by key; a run has to fulfil all."""


def parse_where(given: tuple[str, ...]) -> dict[str, str]:
    """Parse conditions of the form `KEY=VALUE`.

    Raises:
        ConfigError: one has no such form, or a key is given twice.
    """
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip("."):
            raise ConfigError(
                f"{text!r} is no condition.",
                hint=f"Say it as KEY=VALUE; KEY is {', '.join(KEYS)}, or a field of the run's input.",
            )
        if key in found:
            raise ConfigError(f"{key} is given twice.", hint="A run has to fulfil all conditions.")
        found[key] = value
    return found


def of_command(where: Conditions) -> dict[str, str]:
    """Select the conditions that the command of a run answers."""
    return {key: value for key, value in where.items() if key not in OF_INFO}


def fulfils(where: Conditions, command: EventEnvelope) -> bool:
    """Whether the command of a run fulfils all these conditions; they are those of `of_command`."""
    return all(_is(_field(command, key), value) for key, value in where.items())


def is_of(where: Conditions, info: Any) -> bool:
    """Whether an object with the fields of `OF_INFO` fulfils those conditions that it can answer."""
    return all(getattr(info, OF_INFO[key]) == value for key, value in where.items() if key in OF_INFO)


def _field(command: EventEnvelope, key: str) -> Any:
    if key == "by":
        return principal_of(command.producer)
    if key == FAIRNESS_KEY:
        return (command.metadata or {}).get(FAIRNESS_KEY, command.producer.agent_id)
    found: Any = input_of(command.payload)
    name = key.removeprefix(_INPUT)
    if name in found:
        return found[name]
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return found


def _is(found: Any, value: str) -> bool:
    if isinstance(found, str):
        return found == value
    if found is None or isinstance(found, dict | list):
        return False
    return canonical_json(found) == value.encode(errors="replace")
