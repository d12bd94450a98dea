"""`mcp(…)`: the tools of an MCP server as a toolkit (RFC-2003 §5.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from noesium_stream.durations import Duration, in_seconds
from noesium_stream.tool.atomic import AtomicTool, ToolSource
from noesium_stream.tool.extra import import_extra
from noesium_stream.tool.mcp.auth import Bearer, ClientCredentials
from noesium_stream.tool.mcp.declared import MAX_MESSAGE, MAX_TOOLS, Answer, McpServer, server
from noesium_stream.tool.mcp.listing import Listing
from noesium_stream.tool.mcp.walls import ServerSandbox
from noesium_stream.tool.toolkit import AsyncBaseToolkit


class McpToolkit(AsyncBaseToolkit):
    """The tools of one MCP server; made by `mcp`.

    Attributes:
        name: the server's name.
        server: how it is reached, and what is declared.
        warnings: a line about each tool that cannot be used.
    """

    source: ClassVar[ToolSource] = ToolSource.MCP

    def __init__(self, server: McpServer) -> None:
        super().__init__()
        self.name = server.name  # type: ignore[misc]  # one class, and a name for each server
        self.server = server
        self.warnings: tuple[str, ...] = ()
        self._tools: tuple[AtomicTool, ...] = ()
        self._session: Any = None
        self._serves: Any = None
        self._lock = asyncio.Lock()
        self._users = 0
        self._on_change: list[Callable[[], None]] = []

    async def start(self) -> None:
        """Connect, and list the tools; the session then lives until `stop`, whatever the server does.

        Raises:
            ConfigError: the extra `mcp` is not installed, or a secret is not set.
            ToolServerError: the server cannot be reached.
        """
        async with self._lock:
            if self._session is None:
                self._session = await self._started()
            self._users += 1

    async def stop(self) -> None:
        """End the session, and the server if it is a program; with the last of those that have started it."""
        async with self._lock:
            self._users = max(0, self._users - 1)
            if self._users == 0 and self._session is not None:
                session, self._session = self._session, None
                await session.stop()

    async def _started(self) -> Any:
        sessions = await asyncio.to_thread(_module, "session")
        self._serves = (await asyncio.to_thread(_module, "calls")).McpTool
        session: Any = sessions.McpSession(self.server, lambda listing: self._listed(session, listing))
        await session.start()
        return session

    def tools(self) -> list[AtomicTool]:
        """The server's tools, as it has listed them last; none before `start`."""
        return list(self._tools)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back, in the loop of `start`, when `tools` has other definitions than before."""
        self._on_change.append(callback)

    def _listed(self, session: Any, listing: Listing) -> None:
        before = [tool.definition_hash for tool in self._tools]
        self.warnings = listing.warnings
        self._tools = tuple(one.tool.bind(self._serves(session, one).call) for one in listing.offered)
        if before != [tool.definition_hash for tool in self._tools]:
            for callback in self._on_change:
                callback()


def mcp(
    target: str | Sequence[str],
    *,
    name: str | None = None,
    env: Sequence[str] = (),
    folder: str | Path | None = None,
    auth: ClientCredentials | Bearer | None = None,
    sandbox: ServerSandbox | bool = False,
    declare: Mapping[str, Mapping[str, Any]] | None = None,
    answer: Answer | None = None,
    connect_timeout: Duration = 30.0,
    max_message: int = MAX_MESSAGE,
    max_tools: int = MAX_TOOLS,
) -> McpToolkit:
    """The tools of an MCP server.

        mcp("npx -y @acme/crm", env=["CRM_TOKEN"], declare={"find_*": {"side_effects": SideEffectClass.PURE}})
        mcp("https://crm.example.com/mcp", auth=ClientCredentials("agent-7", "CRM_SECRET"))

    Args:
        target: a command (a text is split as a shell would, but no shell reads it), or a URL.
        name: names the server in ids of its tools, in labels and in the permission `mcp:connect:NAME`; by
            default that of the package, the program or the host.
        env: environment variables that the program gets beside PATH: `NAME`, or `NAME=VALUE`.
        folder: the program's current folder; None: an empty one of its own.
        auth: how requests to a URL are authorised.
        sandbox: walls around the program: True for those that open nothing, or what they open. False: it runs
            as any program that the worker's user starts, with all that this user may do.
        declare: by patterns of the server's names of tools: `side_effects`, `determinism`, `permissions`,
            `timeout`, `tags`, `labels`, `max_concurrency`, `max_retries`, `version`, as of `@tool`. What is
            not declared is external and not deterministic; what the server says of itself changes nothing.
        answer: an async function that answers servers of revision 2025-11-25 and before, which ask while the
            call waits: it gets a question's parameters, and gives `{"action": "accept", "content": {…}}`.
            Without it such questions are cancelled. Those of later servers become questions of the run.
        connect_timeout: how long a connection, with the list of tools, may take: a `timedelta`, or seconds.
        max_message: most bytes of one message of the server.
        max_tools: most tools that are used.

    Raises:
        ConfigError: a part of it is not valid.
    """
    return McpToolkit(
        server(
            target,
            name=name,
            env=env,
            folder=folder,
            auth=auth,
            sandbox=sandbox,
            declare=declare or {},
            answer=answer,
            connect_timeout_s=in_seconds(connect_timeout, "connect_timeout", positive=True),
            max_message=max_message,
            max_tools=max_tools,
        )
    )


def _module(name: str) -> Any:
    return import_extra(f"noesium_stream.tool.mcp.{name}", "mcp", "An MCP server")
