"""Skills: named compositions of tools with a contract of their own (RFC-2003 §9, RFC-2004).

A skill has steps, which are data, or a function that calls its tools. Either way each call of a tool is a
call of the step that executes the skill: journaled by its position, so that no call is made again when a run
resumes. `agent_from_skill` makes a capability of a skill: each of its steps is a node there.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from noesium_stream.errors import (
    ConfigError,
    ToolExecutionError,
    ToolInputError,
    ToolNotFoundError,
)
from noesium_stream.kernel import current_step
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.contract import check_schemas, check_value
from noesium_stream.tool.skill.step import (
    END,
    SkillState,
    SkillStep,
    ToolCaller,
    begin,
    check_steps,
    perform,
)
from noesium_stream.tool.skill.template import filled

MAX_PERFORMED: Final = 1_000
"""Steps that one execution of a skill may do, repetitions included."""
CAPABILITY: Final = "skill"

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class RunsTools(Protocol):
    """What a skill is bound to: an executor of tools."""

    def run(
        self, tool: AtomicTool, context: ToolContext | None = None, /, **arguments: Any
    ) -> Awaitable[Any]:
        """Call a tool."""


class SkillRun:
    """One execution of a skill whose logic is a function: what it calls its tools with."""

    def __init__(self, skill: Skill, call: ToolCaller) -> None:
        self._skill = skill
        self._call = call

    async def tool(self, name: str, /, **arguments: Any) -> Any:
        """Call one of the skill's tools; the rest is as with `Step.tool`.

        Raises:
            ToolNotFoundError: it is none of the skill's.
        """
        if name not in self._skill.tool_names:
            raise ToolNotFoundError(
                f"The skill {self._skill.name} has no tool {name[:200]!r}.",
                hint=f"It has {', '.join(self._skill.tool_names) or 'none'}.",
            )
        return await self._call(name, arguments)


SkillFunction = Callable[[SkillRun, dict[str, Any]], Awaitable[Any]]
"""The logic of a skill: gets the validated input, returns a JSON value."""


@dataclass(frozen=True)
class Skill:
    """A composition of tools.

        Skill(
            "brief",
            "Find pages on a topic, and sum them up.",
            input_schema={"type": "object", "properties": {"topic": {"type": "string"}}},
            steps=(
                SkillStep("search", "web_search", {"query": "$input.topic"}),
                SkillStep("sum", "summarise", {"texts": "$search.texts"}, when="len(search.texts) > 0"),
            ),
            output="$sum.text?",
        )

    Attributes:
        name: 1 to 100 of letters, digits, `_`, `.` and `-`.
        description: what it is for.
        input_schema: JSON Schema 2020-12 of its input, an object.
        output_schema: the same of its output; None: any.
        steps: what it does, in order.
        output: a template of what it returns; None: what its last step has returned, or null.
        function: its logic in place of steps; see `skill_of`.
        uses: the names of the tools that a function calls.
        version: semantic version.

    Raises:
        ConfigError: a name, a schema, a condition or a reference is not valid.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    steps: tuple[SkillStep, ...] = ()
    output: Any = None
    function: SkillFunction | None = field(default=None, compare=False, repr=False)
    uses: tuple[str, ...] = ()
    version: str = "1.0.0"
    _bound: ToolCaller | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ConfigError(
                f"{self.name[:200]!r} cannot name a skill.",
                hint="Use letters, digits, -, _ and . , at most 100 of them.",
            )
        if bool(self.steps) == (self.function is not None):
            raise ConfigError(f"The skill {self.name} needs steps or a function, and not both.")
        if self.steps and self.uses:
            raise ConfigError(f"The skill {self.name} has steps, which say themselves what it uses.")
        check_schemas(f"the skill {self.name}", self.input_schema, self.output_schema)
        check_steps(self.name, self.steps, self.output)

    @property
    def skill_id(self) -> str:
        """Its id, which is that of its capability: `skill.NAME`."""
        return f"{CAPABILITY}.{self.name}"

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of its tools, each once."""
        return tuple(dict.fromkeys(self.uses if self.function else (step.tool for step in self.steps)))

    def tools_from(self, tools: Iterable[AtomicTool]) -> dict[str, AtomicTool]:
        """Its tools among others, by name.

        Raises:
            ToolNotFoundError: one of them is not there.
        """
        given = {tool.name: tool for tool in tools}
        missing = [name for name in self.tool_names if name not in given]
        if missing:
            raise ToolNotFoundError(
                f"The skill {self.name} needs the tools {', '.join(missing)}, which are not there.",
                hint=f"There are {', '.join(sorted(given)) or 'none'}.",
            )
        return {name: given[name] for name in self.tool_names}

    def bind_executor(
        self, executor: RunsTools, tools: Iterable[AtomicTool], context: ToolContext | None = None
    ) -> Skill:
        """The same skill, whose tools `executor` calls (RFC-2004).

        Args:
            executor: calls them, with `context`.
            tools: the skill's, among others.
            context: passed on to each call.

        Raises:
            ToolNotFoundError: a tool of the skill is not among them.
        """
        own = self.tools_from(tools)

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            return await executor.run(own[name], context, **arguments)

        return replace(self, _bound=call)

    async def execute(self, **input: Any) -> Any:
        """Execute it inside the calling node, with the tools of the node's agent, or those it is bound to.

        Raises:
            ToolInputError: the skill does not take this input; nothing was called.
            ToolExecutionError: a reference names nothing, a condition cannot be judged, it has done too many
                steps, or its output is not what it promises.
            ToolError, EffectFailedError: as with `Step.tool`.
        """
        self.check_input(input)
        call = self._bound or tool_of_step
        if self.function is not None:
            return self.checked_output(await self.function(SkillRun(self, call), input))
        state = begin(self.name, self.steps, input)
        positions = {step.name: at for at, step in enumerate(self.steps)}
        for _ in range(MAX_PERFORMED):
            if state["next"] == END:
                return self.result_of(state)
            delta = await perform(self.name, self.steps, positions[state["next"]], state, call)
            state = merged(state, delta)
        raise ToolExecutionError(f"The skill {self.name} has done {MAX_PERFORMED:,} steps, and not ended.")

    def result_of(self, state: SkillState) -> Any:
        """What it returns, from its last state.

        Raises:
            ToolExecutionError: the output refers to what is not there, or is not what the skill promises.
        """
        if self.output is None:
            return self.checked_output(state["outputs"].get(self.steps[-1].name))
        scope = {"input": state["input"], **state["outputs"]}
        return self.checked_output(filled(self.output, scope, f"The output of the skill {self.name}"))

    def check_input(self, input: Mapping[str, Any]) -> None:
        """Check an input against the input schema.

        Raises:
            ToolInputError: names the first field that is wrong.
        """
        check_value(self.name, "input", dict(input), self.input_schema, ToolInputError)

    def checked_output(self, value: Any) -> Any:
        """An output that is what the schema promises.

        Raises:
            ToolExecutionError: names the first field that is wrong.
        """
        if self.output_schema is not None:
            check_value(self.name, "output", value, self.output_schema, ToolExecutionError)
        return value


async def tool_of_step(name: str, arguments: dict[str, Any]) -> Any:
    """Call a tool of the agent whose node this is."""
    return await current_step().tool(name, **arguments)


def merged(state: SkillState, delta: Mapping[str, Any]) -> SkillState:
    """The state after a step."""
    return {
        "input": state["input"],
        "outputs": {**state["outputs"], **delta["outputs"]},
        "rounds": {**state["rounds"], **delta["rounds"]},
        "next": delta["next"],
    }
