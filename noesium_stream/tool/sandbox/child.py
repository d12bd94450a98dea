"""Calls one function inside a sandbox: a script, `python -I child.py`, whose standard input is its job.

A job has `path` (folders to import from), `module`, `file` (of a module without a package), `function`,
`arguments` and `context`. The answer is the only thing on standard output, as JSON: `{"result": …}` or
`{"error": TYPE, "message": TEXT}`. What the function itself prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

MAIN = "__noesium_main__"
"""What the module is called here that was `__main__` there: its last lines must not run again."""
_SAID = 2_000


def main() -> None:
    """Do the job on standard input."""
    job = json.loads(sys.stdin.buffer.read())
    answers = os.dup(1)
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        answer = json.dumps({"result": _called(job)}, allow_nan=False)
    except BaseException as error:  # whatever it is, it is the function's, and this process ends
        message = (str(error) or type(error).__name__)[:_SAID]
        answer = json.dumps({"error": type(error).__name__, "message": message})
    with os.fdopen(answers, "w", encoding="utf-8", errors="backslashreplace") as out:
        out.write(answer)


def _called(job: dict[str, Any]) -> Any:
    sys.path[:0] = job["path"]
    found: Any = _module(job["module"], job["file"])
    for name in job["function"].split("."):
        found = getattr(found, name)
    from noesium_stream.tool.context import Mode, ToolContext  # noqa: PLC0415
    from noesium_stream.tool.function import tool_of_function  # noqa: PLC0415

    # A decorator leaves a tool under the function's name; it knows the function.
    function = getattr(getattr(getattr(found, "function", None), "__self__", None), "raw", found)
    said = job["context"]
    context = ToolContext(
        said["agent_id"],
        Path.cwd(),
        tuple(said["granted_permissions"]),
        said["timeout_ms"],
        said["run_id"],
        said["call_id"],
        mode=Mode(said["mode"]),
    )
    serves: Any = tool_of_function(function).function
    value = serves(job["arguments"], context)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def _module(name: str, file: str | None) -> Any:
    if file is None:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python module.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
