"""One request: who asks, and what the client can do."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension of tasks."""

Context = ServerRequestContext[Any, Any]


class Asker(NamedTuple):
    """Who asks.

    Attributes:
        name: of the requester.
        modern: whether the request is of a stateless revision.
        tasks: whether the client knows tasks.
        asks: whether the client can ask its user.
        http: whether the request came by HTTP.
    """

    name: str
    modern: bool
    tasks: bool
    asks: bool
    http: bool


def asker_of(context: Context, anybody: str) -> Asker:
    """Return who asks; `anybody` is the name where the transport tells none."""
    request = context.request
    modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    capabilities = context.session.client_capabilities
    extensions = {} if capabilities is None else capabilities.extensions or {}
    return Asker(
        name=anybody if request is None else request.scope["user"].display_name,
        modern=modern,
        tasks=modern and TASKS in extensions,
        asks=modern and capabilities is not None and capabilities.elicitation is not None,
        http=request is not None,
    )


def require_tasks(asker: Asker, method: str) -> None:
    """Refuse a client that does not know tasks.

    Raises:
        MCPError: it does not.
    """
    if not asker.modern:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
    if not asker.tasks:
        raise missing_tasks()


def missing_tasks() -> MCPError:
    """Return the error of a client that does not know tasks, and would need to."""
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"The client has to declare the extension {TASKS}.",
        {"requiredCapabilities": {"extensions": {TASKS: {}}}},
    )


def check_header(context: Context, task_id: str) -> None:
    """Check that the header `Mcp-Name` of a request about a task names the task.

    Raises:
        MCPError: it does not.
    """
    if context.request is None:
        return
    if decode_header_value(context.request.headers.get(MCP_NAME_HEADER)) != task_id:
        raise MCPError(HEADER_MISMATCH, f"{MCP_NAME_HEADER} header does not match the body's 'taskId'")
