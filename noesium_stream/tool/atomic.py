"""`AtomicTool`: the smallest thing that can be executed, whatever it comes from (RFC-2003 §6, RFC-2004).

A tool is its definition, which is data and has a hash, and a function that serves it, which is code. Only the
executor calls the function (`executor.py`), with events, permissions and a journal around it.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from noesium_stream.errors import (
    ConfigError,
    ToolError,
    ToolExecutionError,
    ToolInputError,
)
from noesium_stream.event.limits import MAX_TEXT
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.standard import DeterminismClass, SideEffectClass
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.contract import check_schemas, check_value

DEFAULT_TIMEOUT_MS: Final = 30_000
MAX_TIMEOUT_MS: Final = 24 * 3_600_000
TIME_LIMIT: Final = "x-noesium-time-limit"
GRACE_MS: Final = 5_000
"""What a call has beyond the time limit among its arguments, to end what it has begun."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")

ToolFunction = Callable[[dict[str, Any], ToolContext], Any]
"""Serves a tool: gets the validated arguments and the context; sync (in a thread) or async.

The result has a JSON form. What it raises is the tool's own error.
"""

NeedsFinder = Callable[[dict[str, Any], ToolContext], Awaitable[Sequence[str]]]
"""Finds what a call needs where the arguments do not show it, such as the tables of an SQL statement.

It is asked before each call, with validated arguments and a context whose permissions are all that the agent
has in the run. It changes nothing, ends soon, and returns permissions, each with a pattern of literal text.
Raises `ToolInputError`: the call is refused; a retriable error: the step fails, and the call has not begun.
"""


class ToolSource(StrEnum):
    """Where a tool comes from (RFC-2003 §5)."""

    BUILTIN = "builtin"
    LANGCHAIN = "langchain"
    MCP = "mcp"
    USER = "user"


@dataclass(frozen=True)
class AtomicTool:
    """One tool.

    Attributes:
        name: what a model calls it: 1 to 128 of letters, digits, `_`, `.` and `-`.
        description: what a model reads about it.
        input_schema: JSON Schema 2020-12 of the arguments, an object. A property with `"writeOnly": true` or
            `"format": "password"` is secret: no event shows its value. One with
            `"x-noesium-time-limit": true` is a time limit in seconds that the tool keeps itself.
        output_schema: the same of the result; None: any.
        source: where it comes from.
        toolkit_name: the toolkit, or the MCP server, that it belongs to.
        determinism_class, side_effect_class: what the person says who declares it, never what the tool says
            of itself. An idempotent tool is called again under the same key after a crash; an external one
            never is.
        permissions: what a call needs, each as in `event/trust/permission.py`; `{name}` stands for the
            argument of that name, so that `fs:write:{path}` needs as much as the call touches.
        timeout_ms: the time limit of one call; that of certain arguments may be shorter (`limit_ms`).
        tags: for discovery; `all_tags` has those of RFC-2003 §8.1, too.
        labels: the provenance of its results, such as `web` or `document`; what it returns is not trusted if
            it has one (see `provenance`).
        max_concurrency: calls at the same time in one process; None: as many as there are.
        max_retries: how often the executor repeats a failed call of a tool that is not external.
        version: semantic version of the definition.
        whole: its result stays in the event, however large: for a node, which needs all of it. Otherwise a
            large one is set aside, and a model reads on where it wants to.
        function: serves it; None: it cannot be called here (a definition that was read).
        find_needs: finds what a call needs beside `permissions`; None: nothing.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    source: ToolSource = ToolSource.USER
    toolkit_name: str | None = None
    determinism_class: DeterminismClass = DeterminismClass.NONDETERMINISTIC
    side_effect_class: SideEffectClass = SideEffectClass.EXTERNAL
    permissions: tuple[str, ...] = ()
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    max_concurrency: int | None = None
    max_retries: int = 0
    version: str = "1.0.0"
    whole: bool = field(default=False, compare=False)
    function: ToolFunction | None = field(default=None, compare=False, repr=False)
    find_needs: NeedsFinder | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ConfigError(
                f"{self.name[:200]!r} cannot name a tool.",
                hint="Use letters, digits, -, _ and . , at most 128 of them.",
            )
        if len(self.description) > MAX_TEXT:
            raise ConfigError(f"The description of the tool {self.name} has over {MAX_TEXT} characters.")
        if not 1 <= self.timeout_ms <= MAX_TIMEOUT_MS:
            raise ConfigError(
                f"The tool {self.name} has a time limit of {self.timeout_ms} ms.",
                hint=f"It can have 1 to {MAX_TIMEOUT_MS} ms.",
            )
        check_schemas(f"the tool {self.name}", self.input_schema, self.output_schema)

    @property
    def tool_id(self) -> str:
        """Its id: `SOURCE:TOOLKIT.NAME`, or `SOURCE:NAME` without a toolkit."""
        return f"{self.source}:{f'{self.toolkit_name}.' if self.toolkit_name else ''}{self.name}"

    @property
    def all_tags(self) -> tuple[str, ...]:
        """Its tags, with `source:…` and `toolkit:…` (RFC-2003 §8.1)."""
        own = (f"source:{self.source}", *((f"toolkit:{self.toolkit_name}",) if self.toolkit_name else ()))
        return (*own, *(tag for tag in self.tags if tag not in own))

    @cached_property
    def definition(self) -> dict[str, Any]:
        """All that is data about it, as JSON: what is registered, compared and accepted."""
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": dict(self.input_schema),
            "output_schema": None if self.output_schema is None else dict(self.output_schema),
            "source": self.source.value,
            "toolkit_name": self.toolkit_name,
            "determinism_class": self.determinism_class.value,
            "side_effect_class": self.side_effect_class.value,
            "permissions": sorted(self.permissions),
            "timeout_ms": self.timeout_ms,
            "tags": sorted(self.tags),
            "labels": sorted(self.labels),
            "version": self.version,
        }

    @cached_property
    def definition_hash(self) -> str:
        """SHA-256 of the definition's canonical form (RFC 8785), in hexadecimal digits."""
        return hashlib.sha256(canonical_json(self.definition)).hexdigest()

    def bind(self, function: ToolFunction) -> AtomicTool:
        """The same tool, served by `function`."""
        return replace(self, function=function)

    def limit_ms(self, arguments: Mapping[str, Any]) -> int:
        """The time limit of a call with these arguments, which need not be valid, in milliseconds.

        After a crash an external call is waited for until then, so it is as short as the arguments say.
        """
        limit_ms = self.timeout_ms
        for name, default in self._time_limits:
            limit_s = arguments.get(name, default)
            if isinstance(limit_s, int | float) and 0 < limit_s * 1_000 < limit_ms:
                limit_ms = min(limit_ms, round(limit_s * 1_000) + GRACE_MS)
        return limit_ms

    @cached_property
    def _time_limits(self) -> tuple[tuple[str, Any], ...]:
        """The arguments that are time limits, with their default values."""
        properties = self.input_schema.get("properties")
        return tuple(
            (name, schema.get("default"))
            for name, schema in (properties.items() if isinstance(properties, Mapping) else ())
            if isinstance(schema, Mapping) and schema.get(TIME_LIMIT) is True
        )

    def check_input(self, arguments: Mapping[str, Any]) -> None:
        """Check arguments against the input schema.

        Raises:
            ToolInputError: names the first field that is wrong.
        """
        check_value(self.name, "arguments", dict(arguments), self.input_schema, ToolInputError)

    def check_output(self, value: Any) -> None:
        """Check a result against the output schema, if there is one.

        Raises:
            ToolExecutionError: names the first field that is wrong.
        """
        if self.output_schema is not None:
            check_value(self.name, "result", value, self.output_schema, ToolExecutionError)

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call the function, a sync one in a thread: without events, permissions and journal.

        The executor's way to make a call; agents use `Step.tool`.

        Raises:
            ToolError: it has no function here.
            Exception: the tool's own error.
        """
        if self.function is None:
            raise ToolError(f"The tool {self.name} is only a definition here; nothing serves it.")
        if inspect.iscoroutinefunction(self.function):
            return await self.function(arguments, context)
        value = await asyncio.to_thread(self.function, arguments, context)
        return await value if inspect.isawaitable(value) else value
