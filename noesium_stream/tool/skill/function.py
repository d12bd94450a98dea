"""`@skill_of`: a skill from a typed async function that calls tools."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from noesium_stream.errors import ConfigError, ToolInputError
from noesium_stream.tool.signature import Signature, readable_result, signature_of
from noesium_stream.tool.skill.skill import Skill, SkillRun


def skill_of(
    *tools: str,
    name: str | None = None,
    description: str | None = None,
    version: str = "1.0.0",
) -> Callable[[Callable[..., Awaitable[Any]]], Skill]:
    """Make a skill of an async function; its schemas come from its annotations.

        @skill_of("search", "summarise")
        async def brief(run: SkillRun, topic: str) -> str:
            \"\"\"Find pages on a topic, and sum them up.\"\"\"
            found = await run.tool("search", query=topic)
            return await run.tool("summarise", texts=found) if found else "nothing"

    Args:
        tools: the names of the tools that it may call; no others.
        name: by default the function's.
        description: by default its docstring.
        version: semantic version.

    Raises:
        ConfigError: it is not async, its first parameter is no `SkillRun`, or another parameter or the result
            has no schema.
    """

    def made(function: Callable[..., Awaitable[Any]]) -> Skill:
        called = name or function.__name__
        if not inspect.iscoroutinefunction(function):
            raise ConfigError(
                f"The skill {called} is no async function.", hint="It awaits its tools: async def."
            )
        signature = signature_of(_without_first(function, called), called, f"the skill {called}")
        return Skill(
            called,
            inspect.getdoc(function) or "" if description is None else description,
            signature.input_schema,
            signature.output_schema,
            function=_served_by(function, signature, called),
            uses=tools,
            version=version,
        )

    return made


def _without_first(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A stand-in for the function that has its signature without the first parameter."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].annotation not in (SkillRun, "SkillRun", inspect.Parameter.empty):
        raise ConfigError(
            f"The first parameter of the skill {name} is no SkillRun.",
            hint=f"async def {name}(run: SkillRun, ...): it calls its tools with it.",
        )

    def stand_in() -> None:
        pass

    stand_in.__wrapped__ = function  # type: ignore[attr-defined]
    stand_in.__signature__ = signature.replace(parameters=parameters[1:])  # type: ignore[attr-defined]
    stand_in.__annotations__ = {
        key: hint for key, hint in inspect.get_annotations(function).items() if key != parameters[0].name
    }
    return stand_in


def _served_by(
    function: Callable[..., Awaitable[Any]], signature: Signature, name: str
) -> Callable[[SkillRun, dict[str, Any]], Awaitable[Any]]:
    readable = readable_result(signature.returns)

    async def serve(run: SkillRun, input: dict[str, Any]) -> Any:
        try:
            typed = signature.typed(input)
        except ValueError as error:  # a type may be narrower than its schema
            raise ToolInputError(f"{name} does not take this input: {error}") from None
        return readable(await function(run, **typed))

    return serve
