"""Rules of the approver, a TOML file: who is asked about what, for how long, and what counts then."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from noesium_stream import ConfigError
from noesium_stream.event.trust.condition import compiled, holds
from noesium_stream.event.trust.wildcards import covers_text

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MOST_BYTES: Final = 100_000
_MOST_RULES: Final = 200


class Rule(BaseModel):
    """Whom to ask about a question.

    Attributes:
        agent: whose questions; `*` is any text.
        tool: about which tool; None: any question, also one that is about no tool.
        when: a condition on the tool's arguments, as in a policy; one that cannot be judged holds.
        ask: people, in the order in which they are asked.
        remind_s: how often one is reminded, in seconds.
        escalate_s: how long one has before the next is asked, in seconds.
        default: what counts when nobody has answered: `deny`, or `wait` for ever.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    agent: str = Field(default="*", max_length=200)
    tool: str | None = Field(default=None, max_length=200)
    when: str | None = Field(default=None, max_length=1_000)
    ask: tuple[str, ...] = Field(min_length=1, max_length=20)
    remind_s: int = Field(default=4 * 3_600, alias="remind", ge=1, le=366 * 86_400)
    escalate_s: int = Field(default=86_400, alias="escalate", ge=1, le=366 * 86_400)
    default: Literal["deny", "wait"] = "deny"

    @field_validator("remind_s", "escalate_s", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts = re.fullmatch(r"([0-9]{1,9})([smhd])", value)
        if parts is None:
            raise ValueError("write a time as 90s, 10m, 4h or 2d")
        return int(parts[1]) * _UNITS[parts[2]]

    @field_validator("when")
    @classmethod
    def _condition(cls, value: str | None) -> str | None:
        if value is not None:
            compiled(value)
        return value

    @property
    def remind(self) -> timedelta:
        """How often one is reminded; never less often than the next is asked."""
        return timedelta(seconds=min(self.remind_s, self.escalate_s))

    def fits(self, agent_type: str, question: Any) -> bool:
        """Whether the rule is about this question of this agent."""
        asked = question if isinstance(question, Mapping) else {}
        tool = asked.get("tool")
        if not covers_text(self.agent, agent_type):
            return False
        if self.tool is not None and not (isinstance(tool, str) and covers_text(self.tool, tool)):
            return False
        arguments = asked.get("arguments")
        return self.when is None or holds(self.when, arguments if isinstance(arguments, Mapping) else {})


def read_rules(path: Path) -> tuple[Rule, ...]:
    """The rules of a file, in order; the first that fits a question counts.

    Raises:
        ConfigError: there is no such file, or one of its rules is not valid; it says which.
    """
    try:
        with path.open("rb") as file:
            found = tomllib.loads(file.read(_MOST_BYTES + 1)[:_MOST_BYTES].decode())
    except OSError as error:
        raise ConfigError(f"The rules {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The rules {path} are not TOML: {error}.") from error
    rules = found.get("rule")
    if set(found) - {"rule"} or not isinstance(rules, list) or not 0 < len(rules) <= _MOST_RULES:
        raise ConfigError(
            f"The rules {path} are no list.",
            hint=f"Write 1 to {_MOST_RULES} parts [[rule]], and nothing else.",
        )
    made = []
    for number, rule in enumerate(rules, 1):
        try:
            made.append(Rule.model_validate(rule))
        except (ValidationError, ConfigError) as error:
            why = error.errors()[0] if isinstance(error, ValidationError) else None
            where = "" if why is None else f"{'.'.join(map(str, why['loc']))}: {why['msg']}"
            raise ConfigError(f"Rule {number} of {path} is not valid: {where or error}.") from error
    return tuple(made)
