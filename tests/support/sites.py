"""HTTP servers on this machine that answer what a test says, byte for byte, and record the requests."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Handler = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def answer(
    body: bytes | str = b"", status: int = 200, content_type: str = "text/plain", **headers: str
) -> bytes:
    """A whole answer; `X_Name="…"` becomes the header `X-Name`."""
    data = body.encode() if isinstance(body, str) else body
    lines = {"Content-Type": content_type, "Content-Length": str(len(data))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode("latin-1") + data


def redirect(location: str, status: int = 302) -> bytes:
    """An answer that leads elsewhere."""
    return answer(b"elsewhere", status, Location=location)


@dataclass
class Site:
    """A server; use as `async with`. What is asked for and has no page gets a 404."""

    pages: dict[str, bytes | Handler] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)
    port: int = 0

    async def __aenter__(self) -> Site:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def host(self) -> str:
        """Address and port."""
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/", host: str | None = None) -> str:
        """A URL of this server, by its address or another name."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{host or '127.0.0.1'}:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(method, path, headers, body)
        self.asked.append(asked)
        page = self.pages.get(path.partition("?")[0], answer(b"not here", 404))
        if callable(page):
            await page(asked, writer)
        else:
            writer.write(page)
        await writer.drain()


def endless(first: bytes, more: bytes) -> Handler:
    """Send `first`, and then `more` until the client goes away."""

    async def page(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while True:
            writer.write(more)
            await writer.drain()

    return page


def silent(first: bytes = b"") -> Handler:
    """Send `first`, and nothing more."""

    async def page(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        await writer.drain()
        await asyncio.Event().wait()

    return page
