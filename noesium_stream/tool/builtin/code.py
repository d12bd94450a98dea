"""The built-in toolkit `code`: Python written by a model, which calls the agent's other tools.

The code runs in Monty (`monty.py`), an interpreter that reaches nothing outside. A function that it calls
and does not define is a tool of the agent: judged, journaled and made as each of its calls, so the code can
do nothing that the agent could not do in single calls. The code pauses there, for days if a person has to be
asked. Whichever process goes on executes it anew from its beginning, with the answers that are on the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import Field

from noesium_stream.errors import ToolExecutionError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool.atomic import AtomicTool, ToolSource
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.extra import import_extra
from noesium_stream.tool.inner_calls import name_in_code
from noesium_stream.tool.legs import MAX_CALLS, CallRequired, Unfinished
from noesium_stream.tool.toolkit import BaseToolkit, ToolkitConfig, register_toolkit

MAX_CODE: Final = 100_000
_TIMEOUT_MS: Final = 120_000
_DESCRIPTION: Final = """Run Python that calls your other tools as functions, and use what they return.

Write code where you would call tools one after the other, in loops, or to pick from large results. Call a
tool by its name with its arguments by name, without await: page = fetch(url="..."). A character of a tool's
name that no Python name has is _ here. A call that is refused or fails raises an exception. The value of the
last expression is the result, as JSON. There are no files, no network and few modules (json, re, math,
datetime, random). The result has value and printed, or error and printed."""


class CodeConfig(ToolkitConfig):
    """Limits of one program.

    Attributes:
        functions: names of the tools that it may call; None: all of the agent.
        max_calls: calls that it may make.
        cpu_s: seconds that it may compute.
        memory_bytes: bytes of its values.
        printed_bytes: characters that it may print.
    """

    functions: tuple[str, ...] | None = None
    max_calls: int = Field(100, ge=0, lt=MAX_CALLS)
    cpu_s: float = Field(5.0, gt=0, le=60)
    memory_bytes: int = Field(64 * 2**20, ge=2**20, le=2**30)
    printed_bytes: int = Field(64 * 1024, ge=1, le=2**20)


@register_toolkit("code")
class CodeToolkit(BaseToolkit):
    """Python written by a model, which calls the agent's other tools."""

    name: ClassVar[str] = "code"
    Config = CodeConfig
    source: ClassVar[ToolSource] = ToolSource.BUILTIN
    config: CodeConfig

    def prepare(self, working_directory: Path) -> None:
        """See `BaseToolkit.prepare`.

        Raises:
            ConfigError: the extra `python-tool` is not installed.
        """
        _monty()

    def tools(self) -> list[AtomicTool]:
        """The tool `code`."""
        functions = self.config.functions
        named = "" if functions is None else f" Functions: {', '.join(functions) or 'none'}."
        code = {"type": "string", "minLength": 1, "maxLength": MAX_CODE}
        return [
            AtomicTool(
                name="code",
                description=_DESCRIPTION + named,
                input_schema={
                    "type": "object",
                    "properties": {"code": code},
                    "required": ["code"],
                    "additionalProperties": False,
                },
                source=self.source,
                toolkit_name=self.name,
                # Code alone reaches nothing, and always takes the same way: what it calls is judged itself.
                side_effect_class=SideEffectClass.PURE,
                timeout_ms=_TIMEOUT_MS,
                tags=("category:code",),
                function=_Code(self.config).call,
            )
        ]


class _Code:
    """Serves the tool `code`: a `Resumable`."""

    def __init__(self, config: CodeConfig) -> None:
        self._config = config
        named = config.functions
        self._functions = None if named is None else frozenset({*named, *map(name_in_code, named)})

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Execute code up to its first call."""
        begun = {"now": datetime.now(UTC).isoformat(), "seed": context.call_id or ""}
        return await asyncio.to_thread(self._run, arguments["code"], begun, [])

    async def resume(
        self,
        arguments: dict[str, Any],
        context: ToolContext,
        unfinished: Unfinished,
        responses: Mapping[str, Any] | None = None,
    ) -> Any:
        """Execute code up to its next call, with the answers of those before it.

        Raises:
            ToolExecutionError: it does not make the same calls again.
        """
        if not isinstance(unfinished, CallRequired):
            raise ToolExecutionError("Code waits for calls of tools alone.")
        calls = (responses or {}).get("calls", [])
        return await asyncio.to_thread(self._run, arguments["code"], unfinished.memory, calls)

    def _run(self, code: str, begun: Mapping[str, str], calls: Sequence[Mapping[str, Any]]) -> Any:
        monty, config = _monty(), self._config
        limits = monty.CodeLimits(config.memory_bytes, config.cpu_s, config.max_calls, config.printed_bytes)
        surroundings = monty.Surroundings(datetime.fromisoformat(begun["now"]), begun["seed"])
        found = monty.run_until_call(
            code,
            [_answered(monty, **one) for one in calls],
            functions=self._functions,
            surroundings=surroundings,
            limits=limits,
        )
        if isinstance(found, monty.Wanted):
            return CallRequired(found.name, found.positional, found.named, begun)
        ended = {"value": found.value} if found.error is None else {"error": found.error}
        return {**ended, "printed": found.printed}


def _answered(monty: Any, call: Mapping[str, Any], answer: Mapping[str, Any]) -> Any:
    wanted = monty.Wanted(call["name"], tuple(call["positional"]), call["named"])
    return monty.Answered(wanted, **answer)


def _monty() -> Any:
    return import_extra("noesium_stream.tool.builtin.monty", "python-tool", "Code in Monty")
