"""The tools of an MCP server as `AtomicTool`s: what is wrong drops one tool, and never the server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from noesium_stream.errors import NoesiumError
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.convert import ToolConverter
from noesium_stream.tool.function import ToolMark
from noesium_stream.tool.mcp.declared import McpServer

MAX_DEFINITION: Final = 65_536
"""Bytes of one tool's definition."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_MODEL_NAME: Final = 64
"""Characters of a name that every provider of models takes."""
_SHOWN: Final = 200
_HINTS: Final = {
    "readOnlyHint": "read-only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open-world",
}


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool, and its name at the server."""

    tool: AtomicTool
    remote: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a server that can be used, and a line about each that cannot."""

    offered: tuple[Offered, ...] = ()
    warnings: tuple[str, ...] = ()


def listing_of(server: McpServer, items: Sequence[Any]) -> Listing:
    """Judge what a server lists; `items` are JSON values, in the server's order."""
    offered: dict[str, Offered] = {}
    warnings: list[str] = []
    for item in items:
        if len(offered) >= server.max_tools:
            warnings.append(f"{server.name} lists {len(items)} tools; only {server.max_tools} are used")
            break
        try:
            one = _offered(server, item)
            if one.tool.name in offered:
                raise ValueError("another tool has this name")
            offered[one.tool.name] = one
        except (ValueError, NoesiumError) as error:
            shown = item.get("name") if isinstance(item, Mapping) else item
            warnings.append(
                f"{server.name} lists a tool {repr(shown)[:_SHOWN]} that cannot be used: {str(error)[:500]}"
            )
    return Listing(tuple(offered.values()), tuple(warnings))


def name_for_models(server: str, tool: str) -> str:
    """A tool's name for models: `SERVER__TOOL` without dots, 64 characters at most: long ones get a hash."""
    name = f"{server}__{tool}".replace(".", "_")
    if len(name) <= _MODEL_NAME:
        return name
    digest = hashlib.sha256(tool.encode()).hexdigest()[:8]
    return f"{name[: _MODEL_NAME - 9]}_{digest}"


def _offered(server: McpServer, item: Any) -> Offered:
    if not isinstance(item, Mapping):
        raise ValueError("it is no object")
    name = item.get("name")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError("its name is not 1 to 128 of letters, digits, _, . and -")
    size = len(orjson.dumps(item))
    if size > MAX_DEFINITION:
        raise ValueError(f"its definition has {size:,} bytes, over {MAX_DEFINITION:,}")
    input_schema = item.get("inputSchema")
    if not isinstance(input_schema, Mapping) or input_schema.get("type") != "object":
        raise ValueError("its input schema is not that of an object")
    described = {**item, "description": item.get("description") or item.get("title")}
    mark = _mark(server, name, item.get("annotations"))
    return Offered(ToolConverter.from_mcp(described, server=server.name, mark=mark), name)


def _mark(server: McpServer, name: str, annotations: Any) -> ToolMark:
    """What is said about a tool here: by the operator, and its hints as tags for people."""
    said = server.declaration(name)
    return ToolMark(
        name=name_for_models(server.name, name),
        determinism=said.determinism,
        side_effects=said.side_effects,
        permissions=(f"mcp:connect:{server.name}", *said.permissions),
        timeout=said.timeout_ms / 1_000,
        tags=(*said.tags, *_hints(annotations)),
        labels=(f"mcp:{server.name}", *said.labels),
        max_concurrency=said.max_concurrency,
        max_retries=said.max_retries,
        version=said.version,
    )


def _hints(annotations: Any) -> list[str]:
    """A server's own word about a tool, as tags for people: `server-says:read-only`."""
    if not isinstance(annotations, Mapping):
        return []
    return [f"server-says:{word}" for hint, word in _HINTS.items() if annotations.get(hint) is True]
