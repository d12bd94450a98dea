"""`ToolConverter`: a tool in the forms of MCP, of function calling, and of LangChain (RFC-2003, RFC-2004)."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from noesium_stream.errors import ConfigError
from noesium_stream.tool.atomic import AtomicTool, ToolFunction, ToolSource
from noesium_stream.tool.function import ToolMark, tool_of_function
from noesium_stream.tool.toolkit import BaseToolkit

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

ToolCall = Callable[[AtomicTool, dict[str, Any]], Awaitable[Any]]
"""Makes a call of a tool with these arguments, through an executor; returns the result."""

_LANGCHAIN: Final = "langchain_core."
_FORM: Final = "noesium_stream.tool.langchain_form"


class ToolConverter:
    """Converts tools; what comes from outside is checked, and not believed about its own effects."""

    @staticmethod
    def to_mcp(tool: AtomicTool, name: str | None = None) -> dict[str, Any]:
        """The tool as an entry of MCP's `tools/list`; `name` if it is to be called otherwise there."""
        form = {
            "name": name or tool.name,
            "description": tool.description,
            "inputSchema": {"type": "object", **tool.input_schema},
        }
        if tool.output_schema is not None and tool.output_schema.get("type") == "object":
            form["outputSchema"] = dict(tool.output_schema)  # MCP takes none but objects
        return form

    @staticmethod
    def from_mcp(
        form: Mapping[str, Any],
        *,
        server: str,
        mark: ToolMark | None = None,
        function: ToolFunction | None = None,
    ) -> AtomicTool:
        """The tool that an entry of MCP's `tools/list` describes.

        Args:
            form: the entry; its annotations are not read.
            server: the name of the server.
            mark: what the operator says about the tool.
            function: serves it.

        Raises:
            ConfigError: the entry has no valid name, or a schema that cannot be used.
        """
        return _from_form(
            form,
            ("inputSchema", "outputSchema"),
            mark or ToolMark(),
            source=ToolSource.MCP,
            toolkit_name=server,
            function=function,
        )

    @staticmethod
    def to_function(tool: AtomicTool, name: str | None = None) -> dict[str, Any]:
        """The tool in the form of function calling: `{"type": "function", "function": {…}}`."""
        return {
            "type": "function",
            "function": {
                "name": name or tool.name,
                "description": tool.description,
                "parameters": {"type": "object", **tool.input_schema},
            },
        }

    @staticmethod
    def from_function(
        form: Mapping[str, Any],
        *,
        mark: ToolMark | None = None,
        function: ToolFunction | None = None,
        toolkit: str | None = None,
    ) -> AtomicTool:
        """The tool that the form of function calling describes; the outer object may be left out.

        Raises:
            ConfigError: it has no valid name, or a schema that cannot be used.
        """
        inner = form.get("function", form)
        if not isinstance(inner, Mapping):
            raise ConfigError("That describes no function: `function` is no object.")
        return _from_form(
            inner,
            ("parameters", "returns"),
            mark or ToolMark(),
            source=ToolSource.USER,
            toolkit_name=toolkit,
            function=function,
        )

    @staticmethod
    def to_langchain(tool: AtomicTool, call: ToolCall | None = None, name: str | None = None) -> BaseTool:
        """The tool as one of LangChain.

        Args:
            tool: the tool.
            call: makes the calls; None: the executor of the agent in whose node it is called.
            name: what the model calls it; None: its own name.
        """
        made: BaseTool = importlib.import_module(_FORM).langchain_tool(tool, call, name or tool.name)
        return made

    @staticmethod
    def from_langchain(tool: BaseTool, *, mark: ToolMark | None = None) -> AtomicTool:
        """The tool that a tool of LangChain is, sync or async.

        Args:
            tool: the tool.
            mark: what the operator says about it; None: what `@tool` has said about it or its function, and
                that it is external if nothing is said.

        Raises:
            ConfigError: its name is not valid, or its arguments have no schema.
        """
        made: AtomicTool = importlib.import_module(_FORM).atomic_tool(tool, mark)
        return made


def atomic_tools(given: Any) -> list[AtomicTool]:
    """The tools that something is: an `AtomicTool`, a toolkit, a tool of LangChain, or a function.

    Raises:
        ConfigError: it is none of these, or no valid one.
    """
    if isinstance(given, AtomicTool):
        return [given]
    if isinstance(given, BaseToolkit):
        return given.tools()
    if is_langchain(given):
        return [ToolConverter.from_langchain(given)]
    if callable(given) and not isinstance(given, type):
        return [tool_of_function(given)]
    raise ConfigError(
        f"{type(given).__name__} {str(given)[:100]!r} is no tool.",
        hint="Give a function, an AtomicTool, an instance of a toolkit, or a tool of LangChain.",
    )


def injected_arguments(tool: AtomicTool) -> list[str]:
    """Arguments that only a graph gives to a tool: its state, store or runtime; those with defaults not."""
    if tool.source is not ToolSource.LANGCHAIN:
        return []
    found: list[str] = importlib.import_module(_FORM).injected_arguments(tool)
    return found


def is_langchain(given: Any) -> bool:
    """Whether something is a tool of LangChain, without importing it."""
    return any(
        kind.__name__ == "BaseTool" and kind.__module__.startswith(_LANGCHAIN) for kind in type(given).__mro__
    )


def _from_form(form: Mapping[str, Any], schemas: Sequence[str], mark: ToolMark, **more: Any) -> AtomicTool:
    name, description = form.get("name"), form.get("description")
    description = "" if description is None else description
    takes, gives = (form.get(schema) for schema in schemas)
    if not isinstance(name, str) or not isinstance(description, str):
        raise ConfigError("A tool is described without a name, or with what is no text.")
    for schema in (takes, gives):
        if schema is not None and not isinstance(schema, Mapping):
            raise ConfigError(f"A schema of the tool {name[:200]!r} is no object.")
    return mark.applied_to(
        AtomicTool(
            name=mark.name or name,
            description=mark.description or description,
            input_schema={"type": "object"} if takes is None else dict(takes),
            output_schema=None if gives is None else dict(gives),
            **more,
        )
    )
