"""Calls that a tool has made of other tools of its agent, and their answers (see `CallRequired`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from noesium_stream.clock import derived_id
from noesium_stream.errors import (
    EffectFailedError,
    NoesiumError,
    ToolError,
    ToolInputError,
    ToolNotFoundError,
    ToolPermissionError,
    ToolTimeoutError,
    brief,
)
from noesium_stream.event.rules.tool_calls import INVOKED
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel.step.position import Place
from noesium_stream.tool.atomic import AtomicTool, ToolSource
from noesium_stream.tool.legs import CallRequired

_SAID: Final = 1_000
_CLASSES: Final = (
    (ToolPermissionError, "PermissionError"),
    (ToolInputError, "ValueError"),
    (ToolTimeoutError, "TimeoutError"),
    (ToolNotFoundError, "NameError"),
)


def name_in_code(tool: str) -> str:
    """The name of a tool in Python: `_` stands for each character that no name has."""
    return re.sub(r"\W", "_", tool, flags=re.ASCII)


def tool_named(name: str, tools: Iterable[AtomicTool], caller: AtomicTool) -> AtomicTool:
    """The tool that code means.

    Raises:
        ToolNotFoundError: there is none, or several, or it is the one that calls.
    """
    found = [tool for tool in tools if name in (tool.name, name_in_code(tool.name))]
    if len(found) == 1 and found[0].tool_id != caller.tool_id:
        return found[0]
    if len(found) > 1:
        names = ", ".join(tool.name for tool in found)
        raise ToolNotFoundError(f"{name[:200]!r} can be each of {names[:500]}.")
    raise ToolNotFoundError(f"{caller.name} can call no tool {name[:200]!r}.")


def arguments_of(wanted: CallRequired, tool: AtomicTool) -> dict[str, Any]:
    """The arguments by name.

    Raises:
        ToolInputError: there are more positional ones than the schema has, or one is given twice.
    """
    names = list(tool.input_schema.get("properties") or {})
    if len(wanted.positional) > len(names):
        raise ToolInputError(f"{tool.name} takes {len(names)} arguments: {', '.join(names)[:500]}.")
    arguments = dict(zip(names, wanted.positional, strict=False))
    twice = sorted(set(arguments) & set(wanted.named))
    if twice:
        raise ToolInputError(f"{tool.name} got the argument {twice[0][:200]!r} twice.")
    return {**arguments, **wanted.named}


def answer_of(error: Exception) -> dict[str, Any] | None:
    """The answer of a call that has failed; None: it is a failure of the run, and no answer."""
    if isinstance(error, NoesiumError) and not isinstance(error, ToolError | EffectFailedError):
        return None
    kinds = (name for kind, name in _CLASSES if isinstance(error, kind))
    return {"error": brief(error, _SAID), "error_class": next(kinds, "RuntimeError")}


def recorded_tool(place: Place, name: str, identity: Any) -> AtomicTool | None:
    """The tool of a call in a recording that is replayed, where its server was not asked for its tools.

    Args:
        place: the step that calls.
        name: the tool's.
        identity: what tells the call from others of the step.
    """
    recorded = place.journal.recorded(derived_id(place.next_call_id("tool", name, identity), "0"))
    if recorded is None:
        return None
    effect_class = SideEffectClass(recorded.payload["effect_class"])
    told = place.journal.recorded(derived_id(recorded.payload["effect_id"], INVOKED))
    of_server = told is not None and told.payload["source"] == ToolSource.MCP
    source = ToolSource.MCP if of_server else ToolSource.USER
    return AtomicTool(name, "", {}, source=source, side_effect_class=effect_class)
