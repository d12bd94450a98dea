"""MCP in tests: the server as a process, by HTTP and standard input, and the SDK's client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import httpx
import mcp_types as types
from mcp.client.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim

from noesium_stream.mcp_server.requests import TASKS
from tests.support.command import Running
from tests.support.log_folder import LogFolder

REVISION = "2026-07-28"


class Task(types.Result):
    """What `tools/call` answers instead of a result."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class KnowsTasks(ClientExtension):
    """Lets a client have tasks."""

    identifier = TASKS

    def claims(self) -> list[ResultClaim[Any]]:
        async def resolve(task: Task, context: ClaimContext) -> types.CallToolResult:
            raise AssertionError("calls here take tasks as they are")

        return [ResultClaim(result_type="task", model=Task, resolve=resolve)]


class Served:
    """A server process and its URL."""

    def __init__(self, process: Running, url: str) -> None:
        self.process = process
        self.url = url

    @asynccontextmanager
    async def client(
        self, *, tasks: bool = False, mode: str = "auto", **options: Any
    ) -> AsyncIterator[Client]:
        """The SDK's own client of the server."""
        extensions = [KnowsTasks()] if tasks else []
        async with Client(self.url, mode=mode, extensions=extensions, **options) as client:
            yield client

    async def post(
        self, method: str, params: dict[str, Any], *, tasks: bool = True, asks: bool = True, **headers: str
    ) -> httpx.Response:
        """One request of the stateless revision, as it is written."""
        capabilities: dict[str, Any] = {"extensions": {TASKS: {}}} if tasks else {}
        capabilities |= {"elicitation": {"form": {}}} if asks else {}
        meta = {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            **params.pop("_meta", {}),
        }
        name = params.get("name") or params.get("taskId")
        sent = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": REVISION,
            "Mcp-Method": method,
            **({} if name is None else {"Mcp-Name": name}),
            **headers,
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            return await http.post(self.url, json=body, headers=sent)

    async def ask(self, method: str, params: dict[str, Any], **options: Any) -> dict[str, Any]:
        """The result of one request."""
        answer = (await self.post(method, params, **options)).json()
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    async def task(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """A task, when it has one of these statuses."""
        async with asyncio.timeout(60):
            while True:
                found = await self.ask("tasks/get", {"taskId": task_id})
                if found["status"] in statuses:
                    return found
                await asyncio.sleep(0.02)


class Place(LogFolder):
    """A folder with a log in it, and MCP servers on that log."""

    @contextmanager
    def serving(self, *args: str) -> Iterator[Served]:
        """A server process at a free port."""
        given = ("--http", "127.0.0.1:0", "--log", self.url, *args)
        with self.folder.running("mcp", "serve", *given) as process:
            line = process.wait_for_error_line("serving MCP at ")
            yield Served(process, line.split()[3])
