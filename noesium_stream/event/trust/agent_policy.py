"""What a policy says of one agent's tools: the part `[agents.NAME]` of the file.

[agents.clerk]
grant = ["fs:write:reports/**", "net:outbound:api.example.com"]
mode = "act"
approve = [{tool = "refund", when = "cents > 5000", by = "role:finance", minimum = 2}]
never = [{tool = "send_*", argument_from = "web"}]
without_approval = ["notify"]
budget = {usd = 0.5, tokens = 100000, on_limit = "ask"}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from noesium_stream.errors import ConfigError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.event.standard.agent import UNKNOWN_LABEL
from noesium_stream.event.trust.budget import Budget
from noesium_stream.event.trust.condition import MAX_CONDITION, compiled, holds
from noesium_stream.event.trust.permission import (
    MAX_GRANTS,
    MAX_PERMISSION,
    ModeName,
    permission_problem,
)
from noesium_stream.event.trust.wildcards import MANY, covers_text

Labels = Mapping[str, Collection[str]]
"""The provenance of a call's arguments, by name; `*`: of all of them."""

ALL: Final = "*"


def _permission(text: str) -> str:
    problem = permission_problem(text)
    if problem is not None:
        raise ValueError(f"{text[:80]!r} is no permission: {problem}")
    return text


def _condition(text: str) -> str:
    try:
        compiled(text)
    except ConfigError as error:
        raise ValueError(error.message) from None
    return text


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Name = Annotated[str, Field(min_length=1, max_length=256)]
_Names = Annotated[list[_Name], BeforeValidator(_several), Field(max_length=1_000)]
_Permission = Annotated[str, Field(max_length=MAX_PERMISSION), AfterValidator(_permission)]


class ToolRule(BaseModel):
    """The calls that a rule is about: those for which all that it says holds.

    Attributes:
        tool: name or id of a tool; `*` in it is any text.
        when: see `condition`; a condition that cannot be judged holds.
        argument_from: labels of which an argument has one (`web`, `mcp:*`); one whose labels are not known
            may have any of them.
        argument: which argument has to have the label; `*`: any.
        side_effects: classes of which the tool has one; empty: any.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    tool: _Name
    when: Annotated[str, Field(max_length=MAX_CONDITION), AfterValidator(_condition)] | None = None
    argument_from: _Names = []
    argument: _Name = ALL
    side_effects: Annotated[list[SideEffectClass], BeforeValidator(_several)] = []

    def names(self, tools: Collection[str]) -> bool:
        """Whether it is about a tool with one of these names."""
        return any(covers_text(self.tool, name) for name in tools)

    def is_about(
        self,
        tools: Collection[str],
        side_effects: SideEffectClass,
        arguments: Mapping[str, Any],
        labels: Labels,
    ) -> bool:
        """Whether it is about a call.

        Args:
            tools: name and id of the tool.
            side_effects: the tool's class.
            arguments: of the call, not validated.
            labels: of the arguments.
        """
        return (
            self.names(tools)
            and (not self.side_effects or side_effects in self.side_effects)
            and (not self.argument_from or bool(self.labels_in(labels)))
            and (self.when is None or holds(self.when, arguments))
        )

    def labels_in(self, labels: Labels) -> list[str]:
        """Those labels of the arguments that the rule asks about, sorted."""
        names = labels if self.argument == ALL else [ALL, self.argument]
        return sorted(
            {
                label
                for name in names
                for label in labels.get(name, ())
                if label == UNKNOWN_LABEL or any(covers_text(one, label) for one in self.argument_from)
            }
        )


class ApproveRule(ToolRule):
    """Calls that wait for an answer by a person.

    Attributes:
        by: who may approve: names and `role:NAME`; empty: whoever may answer.
        minimum: how many have to approve.
    """

    by: _Names = []
    minimum: Annotated[int, Field(ge=1, le=100)] = 1

    @property
    def decides_alone(self) -> bool:
        """Whether mode `act` does not ask about the other calls of this tool: it says when to ask."""
        return self.when is not None and not self.argument_from and MANY not in self.tool


class NeverRule(ToolRule):
    """Calls that are refused, whoever approves."""


class AgentPolicy(BaseModel):
    """What an agent's tools may do.

    Attributes:
        grant: the permissions; None: those that the agent's class names.
        mode: the most that the agent may do; None: what the agent's class names.
        approve, never: rules, in addition to those of `[agents."*"]`.
        without_approval: names of tools; mode `act` does not ask about their external calls.
        budget: what a run of the agent may spend on models; None: what its class names.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    grant: Annotated[list[_Permission], Field(max_length=MAX_GRANTS)] | None = None
    mode: ModeName | None = None
    approve: Annotated[list[ApproveRule], Field(max_length=1_000)] = []
    never: Annotated[list[NeverRule], Field(max_length=1_000)] = []
    without_approval: _Names = []
    budget: Budget | None = None
