"""Tools of LangChain as tools, and the other way; imported only where one is converted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, Final
from uuid import uuid4

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool
from langgraph.errors import GraphInterrupt
from pydantic import BaseModel

from noesium_stream.errors import ConfigError, ToolError, ToolExecutionError
from noesium_stream.kernel.run_context import current_run
from noesium_stream.kernel.step.position import enclosing_step
from noesium_stream.kernel.step.step import current_step
from noesium_stream.tool.atomic import AtomicTool, ToolFunction, ToolSource
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.convert import ToolCall
from noesium_stream.tool.function import MARK, SERVES, ToolMark
from noesium_stream.tool.toolbox import AgentToolbox

CALL_KEY: Final[ContextVar[str | None]] = ContextVar("noesium_tool_call", default=None)
"""The id that a model has given to the call that is about to be made; None: it has none."""


def langchain_tool(tool: AtomicTool, call: ToolCall | None, name: str) -> BaseTool:
    """The tool as one of LangChain, with its input schema as JSON Schema."""

    async def called(**arguments: Any) -> Any:
        return await (_by_the_agent if call is None else call)(tool, arguments)

    def called_sync(**arguments: Any) -> Any:
        return _waited_for(called(**arguments), tool)

    if call is None:
        setattr(called, SERVES, tool)
    return StructuredTool(
        name=name,
        description=tool.description,
        args_schema={"type": "object", "title": name, "properties": {}, **tool.input_schema},
        func=called_sync,
        coroutine=called,
        metadata={"tool_id": tool.tool_id},
        tags=list(tool.all_tags),
    )


def atomic_tool(tool: BaseTool, mark: ToolMark | None = None) -> AtomicTool:
    """The tool that a tool of LangChain is; the one that it was made from, if `langchain_tool` made it.

    Raises:
        ConfigError: its name is not valid, or its arguments have no schema.
    """
    made_from = shown_tool(tool)
    if made_from is not None and mark is None:
        return made_from
    mark = mark or mark_of(tool)
    return mark.applied_to(
        AtomicTool(
            name=mark.name or tool.name,
            description=mark.description or tool.description,
            input_schema=_schema_of(tool),
            source=ToolSource.LANGCHAIN,
            function=_served_by(tool),
        )
    )


def shown_tool(tool: BaseTool) -> AtomicTool | None:
    """The tool that `langchain_tool` has made this one of LangChain from, for the agent's executor."""
    found = getattr(getattr(tool, "coroutine", None), SERVES, None)
    return found if isinstance(found, AtomicTool) else None


def mark_of(tool: BaseTool) -> ToolMark:
    """What `@tool` says about a tool of LangChain, or about its function."""
    functions = (getattr(tool, "coroutine", None), getattr(tool, "func", None))
    for said in (vars(tool).get(MARK), *(getattr(function, MARK, None) for function in functions)):
        if isinstance(said, ToolMark):
            return said
    return ToolMark()


def injected_arguments(tool: AtomicTool) -> list[str]:
    """See `convert.injected_arguments`."""
    made_from = getattr(tool.function, SERVES, None)
    if not isinstance(made_from, BaseTool):
        return []
    whole: Any = made_from.get_input_schema()
    return [
        name
        for name, field in getattr(whole, "model_fields", {}).items()
        if name not in tool.input_schema.get("properties", {})
        and field.is_required()
        and not any(map(_is_call_id, field.metadata))
    ]


def _is_call_id(said: Any) -> bool:
    """Whether this part of an annotation says that the argument is the call's id, which LangChain gives."""
    return said is InjectedToolCallId or isinstance(said, InjectedToolCallId)


async def _by_the_agent(tool: AtomicTool, arguments: dict[str, Any]) -> Any:
    run, place = current_run(), enclosing_step()
    if run is None or place is None:
        raise ToolError(
            f"The tool {tool.name} is called by its executor alone.",
            hint=f'Call it in a node: await step.tool("{tool.name}", …).',
        )
    if not isinstance(run.toolbox, AgentToolbox):
        raise ToolError(
            f"The node {place.node} calls the tool {tool.name}, and its agent names no tools.",
            hint="Name them in the agent's class attribute `tools`.",
        )
    return await run.toolbox.call_shown(place, tool, arguments, CALL_KEY.get())


def _waited_for(calling: Coroutine[Any, Any, Any], tool: AtomicTool) -> Any:
    """The result of a call, in a thread of a node or outside any loop."""
    if enclosing_step() is not None:
        return current_step().run_sync(calling)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(calling)
    calling.close()
    raise ToolError(
        f"The tool {tool.name} is called in an event loop, which must not wait.", hint="Use `ainvoke`."
    )


def _schema_of(tool: BaseTool) -> dict[str, Any]:
    """The JSON Schema of what a model gives: without arguments that are injected."""
    try:
        schema: Any = tool.tool_call_schema
        if isinstance(schema, Mapping):
            return dict(schema)
        if issubclass(schema, BaseModel):
            return dict(schema.model_json_schema())
        return dict(schema.schema())
    except Exception as error:  # what a tool of others raises while it is asked
        raise ConfigError(
            f"No schema can be made of the LangChain tool {tool.name}: {str(error).splitlines()[0][:200]}",
            hint="Give it an `args_schema` of types that have a JSON form.",
        ) from error


def _served_by(tool: BaseTool) -> ToolFunction:
    async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        asked = {
            "type": "tool_call",
            "id": context.call_id or str(uuid4()),
            "name": tool.name,
            "args": arguments,
        }
        try:
            message = await tool.ainvoke(asked)
        except GraphInterrupt:
            raise ToolExecutionError(
                f"The tool {tool.name} asks by interrupt(): only in a ToolNode it waits for the answer."
            ) from None
        if not isinstance(message, ToolMessage):
            return message
        return (
            message.content
            if message.artifact is None
            else {"content": message.content, "artifact": message.artifact}
        )

    setattr(call, SERVES, tool)
    return call
