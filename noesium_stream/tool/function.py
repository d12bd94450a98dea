"""Tools from typed functions (RFC-2003 §5.4): name, description and schemas come from the function itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, overload

from pydantic import BaseModel, ValidationError

from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import ConfigError, ToolInputError
from noesium_stream.event.standard import DeterminismClass, SideEffectClass
from noesium_stream.tool.atomic import DEFAULT_TIMEOUT_MS, AtomicTool, ToolSource
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.signature import KEY, Signature, readable_result, signature_of

F = TypeVar("F", bound=Callable[..., Any] | BaseModel)

MARK: Final = "__noesium_tool__"
SERVES: Final = "__noesium_serves__"
"""Attribute of the function of an `AtomicTool`: what it was made from, a function or a tool of LangChain."""


@dataclass(frozen=True, slots=True)
class ToolMark:
    """What `@tool` says about a function."""

    name: str | None = None
    description: str | None = None
    side_effects: SideEffectClass = SideEffectClass.EXTERNAL
    determinism: DeterminismClass = DeterminismClass.NONDETERMINISTIC
    permissions: tuple[str, ...] = ()
    timeout: Duration | None = None
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    max_concurrency: int | None = None
    max_retries: int = 0
    version: str = "1.0.0"

    def applied_to(self, tool: AtomicTool) -> AtomicTool:
        """The tool with what is said here, but for name and description.

        Raises:
            ConfigError: the time limit is not valid.
        """
        return replace(
            tool,
            determinism_class=self.determinism,
            side_effect_class=self.side_effects,
            permissions=self.permissions,
            timeout_ms=DEFAULT_TIMEOUT_MS if self.timeout is None else _ms(self.timeout, tool.name),
            tags=self.tags,
            labels=self.labels,
            max_concurrency=self.max_concurrency,
            max_retries=self.max_retries,
            version=self.version,
        )


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    side_effects: SideEffectClass = SideEffectClass.EXTERNAL,
    determinism: DeterminismClass = DeterminismClass.NONDETERMINISTIC,
    permissions: Sequence[str] = (),
    timeout: Duration | None = None,
    tags: Sequence[str] = (),
    labels: Sequence[str] = (),
    max_concurrency: int | None = None,
    max_retries: int = 0,
    version: str = "1.0.0",
) -> Callable[[F], F]: ...


def tool(function: Any = None, /, **options: Any) -> Any:
    """Mark a function, or a method of a toolkit, as a tool; or say what a tool of LangChain does.

        @tool(side_effects=EXTERNAL, permissions=("net:outbound:api.example.com",), timeout=10)
        async def refund(order: int, cents: int) -> str:
            \"\"\"Pay an order back.\"\"\"

    The function stays what it is, and can be called as before. A parameter `idempotency_key` gets the call's
    key, and one that is annotated with `ToolContext` the context; a model sees neither. The options are the
    attributes of `AtomicTool`; `timeout` is a `timedelta`, or seconds.

        search = tool(side_effects=PURE, permissions=("net:outbound:api.tavily.com",))(TavilySearch())
    """
    if function is not None:
        return tool(**options)(function)
    for several in ("permissions", "tags", "labels"):
        options[several] = tuple(options.get(several, ()))
    mark = ToolMark(**options)

    def marked(marking: F) -> F:
        if isinstance(marking, BaseModel):
            object.__setattr__(marking, MARK, mark)  # pydantic takes none but fields
        else:
            setattr(marking, MARK, mark)
        return marking

    return marked


def tool_of_function(
    function: Callable[..., Any],
    *,
    toolkit: str | None = None,
    source: ToolSource = ToolSource.USER,
    mark: ToolMark | None = None,
) -> AtomicTool:
    """The tool that a function, or a bound method, is.

    Args:
        function: sync or async, with annotated parameters; marked by `@tool` or not.
        toolkit: the toolkit that it belongs to.
        source: where it comes from.
        mark: what is said about it; None: what `@tool` says.

    Raises:
        ConfigError: it has parameters without names, or of types without a schema.
    """
    mark = mark or getattr(function, MARK, None) or ToolMark()
    name = str(mark.name or getattr(function, "__name__", type(function).__name__))
    signature = signature_of(getattr(function, "__func__", function), name, f"the tool {name}")
    found = AtomicTool(
        name=name,
        description=mark.description or inspect.getdoc(function) or "",
        input_schema=signature.input_schema,
        output_schema=signature.output_schema,
        source=source,
        toolkit_name=toolkit,
        function=_served_by(function, signature, name),
    )
    return mark.applied_to(found)


def _ms(timeout: Duration, name: str) -> int:
    ms = round(in_seconds(timeout, "timeout") * 1000)
    if ms < 1:
        raise ConfigError(f"The tool {name} has a time limit of {ms} ms.", hint="Give `timeout` in seconds.")
    return ms


def _reason(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg'][:200]}."


def _served_by(function: Callable[..., Any], signature: Signature, name: str) -> Callable[..., Any]:
    """Wrap `function` to take JSON values, the key and the context, and convert them to declared types."""
    given, readable = signature.given, readable_result(signature.returns)

    def arguments_of(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        try:
            typed = signature.typed(arguments)
        except ValueError as error:  # a type may be narrower than its schema
            raise ToolInputError(f"{name} does not take these arguments: {_reason(error)}") from None
        for parameter in given:
            typed[parameter] = context.call_id if parameter == KEY else context
        return typed

    def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        return readable(function(**arguments_of(arguments, context)))

    async def call_async(arguments: dict[str, Any], context: ToolContext) -> Any:
        return readable(await function(**arguments_of(arguments, context)))

    served = call_async if inspect.iscoroutinefunction(function) else call
    setattr(served, SERVES, function)
    return served
