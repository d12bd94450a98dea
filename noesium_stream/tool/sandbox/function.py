"""`sandboxed`: a function as a tool whose calls run in a sandboxed process, each in its own.

The walls are what the tool declares for these arguments, as far as the call was granted it. So a function
that does other things than it declares, by an error or by design, meets a wall.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from asyncio import to_thread
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from noesium_stream.errors import (
    ConfigError,
    OutcomeUnknownError,
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
)
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.event.trust.permission import intersection
from noesium_stream.event.trust.permission_needs import needs_of
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.function import tool_of_function
from noesium_stream.tool.sandbox import child
from noesium_stream.tool.sandbox.find import find_sandbox
from noesium_stream.tool.sandbox.python import python_folders
from noesium_stream.tool.sandbox.result import Ended, SandboxResult
from noesium_stream.tool.sandbox.walls import MIB, Limits, Walls, walls_of

MAX_ANSWER: Final = 8 * MIB
"""Bytes of a result."""
_SAID: Final = 2_000
_COMMAND: Final = (os.path.abspath(sys.executable), "-I", "-B", str(Path(child.__file__).resolve()))
_PACKAGE: Final = Path(child.__file__).resolve().parents[2]


def sandboxed(
    function: Callable[..., Any],
    *,
    programs: Sequence[str | Path] = (),
    limits: Limits | None = None,
    sandbox: str | None = None,
) -> AtomicTool:
    """The tool that a function is, called in a sandbox; also as a decorator, outside of `@tool`.

        @sandboxed
        @tool(side_effects=SideEffectClass.PURE, permissions=("fs:read:docs/**",))
        def count(word: str) -> int: ...

    The function sees the installed packages and its own module, or the package that this is in, read-only;
    the workspace as its current folder, with what the tool's `permissions` say for these arguments, as far as
    they are granted; no variables but those of `env:read`; no network without `net:outbound`. It is imported
    anew for each call: what it keeps in memory is gone. Arguments and result are JSON.

    Args:
        function: on the top level of a module that is a file; marked by `@tool` or not.
        programs: further files and folders that it can read; those that are modules it can import.
        limits: None: the default ones of a sandbox, and the tool's time limit.
        sandbox: the provider; None: the first that works here.

    Raises:
        ConfigError: the function cannot be found by its name in another process.
    """
    tool = tool_of_function(function)
    made = _Sandboxed(function, tool, tuple(Path(one).absolute() for one in programs), limits, sandbox)
    return replace(tool, function=made.call)


class _Sandboxed:
    """Serves a tool by a process in a sandbox; `raw` is the function."""

    def __init__(
        self,
        raw: Callable[..., Any],
        tool: AtomicTool,
        programs: tuple[Path, ...],
        limits: Limits | None,
        sandbox: str | None,
    ) -> None:
        self.raw = raw
        self._tool = tool
        self._limits = replace(limits or Limits(wall_s=tool.timeout_ms / 1000), output_bytes=MAX_ANSWER)
        self._provider = sandbox
        self._who = f"The sandboxed tool {tool.name}"
        module = _module_of(raw, tool.name)
        root, self._file = _root_of(module)
        imported = (root, *programs)
        self._programs = (*python_folders(), _PACKAGE, *imported)
        self._path = [str(parent) for parent in dict.fromkeys(one.parent for one in (*imported, _PACKAGE))]
        self._module = child.MAIN if module.__name__ == "__main__" else module.__name__

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call the function in a process of its own.

        Raises:
            SandboxError: there is no sandbox, or its walls cannot be built; nothing was called.
            ToolExecutionError: the function raised an error, or its process ended without a result.
            ToolTimeoutError: it had not ended within its time limit.
            OutcomeUnknownError: its process ended without a result, and the tool is external.
        """
        sandbox = await to_thread(find_sandbox, self._provider)
        job = json.dumps(
            {
                "path": self._path,
                "module": self._module,
                "file": self._file,
                "function": self.raw.__qualname__,
                "arguments": arguments,
                "context": {
                    "agent_id": context.agent_id,
                    "granted_permissions": context.granted_permissions,
                    "timeout_ms": context.timeout_ms,
                    "run_id": context.run_id,
                    "call_id": context.call_id,
                    "mode": context.mode.value,
                },
            }
        )
        walls = self._walls(arguments, context)
        return self._value(await sandbox.run(_COMMAND, walls, stdin=job.encode()))

    def _walls(self, arguments: dict[str, Any], context: ToolContext) -> Walls:
        declared = needs_of(self._tool.permissions, arguments)
        # A mount that can be written can be read.
        read = [one.replace("fs:write", "fs:read", 1) for one in declared if one.startswith("fs:write")]
        both = intersection(context.granted_permissions, (*declared, *read))
        inside = replace(context, granted_permissions=both)
        return walls_of(inside, limits=self._limits, programs=self._programs)

    def _value(self, result: SandboxResult) -> Any:
        """The function's result in what its process has written, which may be anything."""
        answer = None
        if result.ended is Ended.EXIT and not result.stdout_cut:
            try:
                answer = json.loads(result.stdout)
            except (ValueError, RecursionError):
                answer = None
        if isinstance(answer, dict) and "result" in answer:
            return answer["result"]
        if isinstance(answer, dict) and {"error", "message"} <= answer.keys():
            said = f"{str(answer['error'])[:100]}: {str(answer['message'])[:_SAID]}"
            raise ToolExecutionError(f"{self._who} failed: {said}")
        raise self._no_result(result)

    def _no_result(self, result: SandboxResult) -> Exception:
        how = f"its process ended ({result.ended.value}, exit code {result.exit_code}) without a result"
        if result.stdout_cut:
            how = f"its result takes over {MAX_ANSWER:,} bytes"
        if self._tool.side_effect_class is SideEffectClass.EXTERNAL:
            return OutcomeUnknownError(f"{self._who} was called, and {how}.")
        kind: type[ToolError] = ToolTimeoutError if result.ended is Ended.TIMEOUT else ToolExecutionError
        return kind(f"{self._who}: {how}.")


def _module_of(function: Callable[..., Any], name: str) -> ModuleType:
    qualified = getattr(function, "__qualname__", "<none>")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if not inspect.isfunction(function) or "<" in qualified or module is None or not file:
        raise ConfigError(
            f"{name} cannot be a sandboxed tool: another process cannot find it.",
            hint="Define it with `def` on the top level of a module that is a file.",
        )
    return module


def _root_of(module: ModuleType) -> tuple[Path, str | None]:
    """What the function's process has to see of its module: its outermost package; or the file itself."""
    file = Path(module.__file__ or "").resolve()
    outermost, dot, _ = module.__name__.partition(".")
    package = sys.modules.get(outermost)
    if dot and package is not None and getattr(package, "__path__", None):
        return Path(next(iter(package.__path__))).resolve(), None
    return file, str(file)
