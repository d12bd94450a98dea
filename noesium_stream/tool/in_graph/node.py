"""A `ToolNode` whose calls the executor of the agent makes, in its runs.

Decision record: the functions `func` and `afunc` of the node, which LangGraph calls, are replaced on the node
itself: then it does not matter where it is (a node, a part of a sequence, a subgraph, the code of a node).
Outside a run of an agent they are the node's own, unchanged. In a run they are those of a copy, in which
three methods are replaced:

- `_execute_tool_async` gets the request with a `JournaledTool` in the place of the tool. Wrappers
  (`wrap_tool_call`, the middleware of LangChain) stay outside it, and a tool that they add is called by the
  executor, too. A wrapper of our own would not do: `ToolNode` handles what a wrapper raises otherwise than
  what a tool raises.
- `_arun_one` and `_combine_tool_outputs`: after a failure the other calls of the message end before the node
  does, and the failure of the first call counts, not of the fastest one.

They are not public. A release of LangGraph without them is refused when the agent starts.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import version
from types import MethodType
from typing import Any, Final, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest

from noesium_stream.errors import KernelError
from noesium_stream.kernel.error_classes import declare_classes, declare_errors
from noesium_stream.kernel.run_context import current_run
from noesium_stream.kernel.step.position import Place, enclosing_step
from noesium_stream.kernel.step.step import current_step, require_effects
from noesium_stream.tool.in_graph.call import JournaledTool, RefusedError, is_serving
from noesium_stream.tool.toolbox import AgentToolbox

_SEAM: Final = ("_arun_one", "_combine_tool_outputs", "_execute_tool_async")
_DONE: Final = "__noesium_journaled__"


@dataclass(frozen=True, slots=True)
class _Failure:
    """The end of a call that has failed, until the others have ended."""

    error: Exception


def journal_calls(node: ToolNode) -> None:
    """Have the tools of a node called by the executor of the agent, in its runs; once is enough.

    Raises:
        KernelError: this release of LangGraph is not known.
    """
    if getattr(node.afunc, _DONE, False):
        return
    missing = [name for name in _SEAM if not callable(getattr(node, name, None))]
    if missing or not callable(node.afunc) or not callable(node.func):
        raise KernelError(
            f"The ToolNode of langgraph-prebuilt {version('langgraph-prebuilt')} has no "
            f"{', '.join(missing) or 'functions'}: its calls could not be recorded.",
            hint="Install a release of langgraph-prebuilt that this one was tested with, such as 1.1.3.",
        )
    _declare(node)
    own_async, own_sync = node.afunc, node.func
    recorded = _of_copy(node, own_async)

    @wraps(own_async)
    async def afunc(*args: Any, **kwargs: Any) -> Any:
        return await (own_async if _where() is None else recorded)(*args, **kwargs)

    @wraps(own_sync)
    def func(*args: Any, **kwargs: Any) -> Any:
        if _where() is None:
            return own_sync(*args, **kwargs)
        return current_step().run_sync(cast(Coroutine[Any, Any, Any], recorded(*args, **kwargs)))

    setattr(afunc, _DONE, True)
    node.afunc, node.func = afunc, func


def _of_copy(node: ToolNode, own: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The async function of a copy of the node, whose calls are recorded."""
    twin: Any = copy.copy(node)
    _replace_methods(twin)
    if twin._wrap_tool_call is not None and twin._awrap_tool_call is None:
        twin._awrap_tool_call = _in_a_thread(twin._wrap_tool_call)
    if getattr(own, "__self__", None) is not node:
        return own
    recorded: Callable[..., Awaitable[Any]] = MethodType(cast(MethodType, own).__func__, twin)
    return recorded


def _replace_methods(twin: Any) -> None:
    run_one, combine, execute = (getattr(twin, name) for name in _SEAM)

    async def execute_recorded(request: ToolCallRequest, *args: Any, **kwargs: Any) -> Any:
        where = _where()
        if where is None or request.tool is None:
            return await execute(request, *args, **kwargs)
        return await _executed(request, *where, lambda one: execute(one, *args, **kwargs))

    async def run_to_its_end(*args: Any, **kwargs: Any) -> Any:
        try:
            return await run_one(*args, **kwargs)
        except Exception as error:
            return _Failure(error)

    def combine_or_raise(outputs: list[Any], *args: Any, **kwargs: Any) -> Any:
        for output in outputs:
            if isinstance(output, _Failure):
                raise output.error
        return combine(outputs, *args, **kwargs)

    for name, method in zip(_SEAM, (run_to_its_end, combine_or_raise, execute_recorded), strict=True):
        setattr(twin, name, method)


async def _executed(
    request: ToolCallRequest,
    place: Place,
    toolbox: AgentToolbox,
    execute: Callable[[ToolCallRequest], Awaitable[Any]],
) -> Any:
    """Have LangGraph's code execute a request with a journaled tool."""
    behind = cast(BaseTool, request.tool)
    require_effects(place.node, behind.name)
    tool = JournaledTool(behind, cast(dict[str, Any], request.tool_call), place, toolbox)
    try:
        answer = await execute(request.override(tool=cast(BaseTool, tool)))
    except RefusedError as refused:
        raise refused.refusal from None
    except Exception as error:
        answer = tool.told_before() if tool.failed else None
        if answer is None:
            raise tool.as_recorded(error) from None
    return await tool.told(answer) if tool.failed and isinstance(answer, ToolMessage) else answer


def _in_a_thread(wrap: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """A sync wrapper as an async one: what it executes needs the loop, which it must not block."""

    async def awrap(request: Any, execute: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        loop = asyncio.get_running_loop()

        def wait(one: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(execute(one), loop).result()

        return await asyncio.to_thread(wrap, request, wait)

    return awrap


def _where() -> tuple[Place, AgentToolbox] | None:
    """The step that makes the call, and the tools of its agent; None: the node is on its own."""
    run, place = current_run(), enclosing_step()
    if run is None or place is None or is_serving() or not isinstance(run.toolbox, AgentToolbox):
        return None
    return place, run.toolbox


def _declare(node: ToolNode) -> None:
    """Let the errors of the tools, and those that the node handles, be rebuilt from the log."""
    handler: Any = getattr(node, "_handle_tool_errors", None)
    kinds = handler if isinstance(handler, tuple) else (handler,)
    declare_classes(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception))
    for tool in node.tools_by_name.values():
        named = (getattr(tool, name, None) for name in ("func", "coroutine", "_run"))
        declare_errors(function for function in (*named, handler) if callable(function))
