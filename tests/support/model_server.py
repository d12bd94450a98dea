"""A server of language models on this machine, with scripted answers and faults.

It speaks OpenAI's chat completions and embeddings (`/v1/…`, also what llama.cpp's server and OpenRouter
speak) and Ollama's chat and embeddings (`/api/…`), whole and in pieces:

    with model_server([said("4"), rate_limited(2), cut_off("a b c", pieces=1)]) as server:
        ChatOpenAI(base_url=server.openai, ...)

Answers are taken in order; without a script, or behind its end, it repeats the last message. What it was
asked is in `requests`. As a program (`python model_server.py DELAY_S`) it prints its port.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.model_wire import (
    ollama_piece,
    ollama_whole,
    openai_pieces,
    openai_whole,
    refusal_body,
)
from tests.support.reading import PATIENCE_S


@dataclass(frozen=True)
class Scripted:
    """One answer.

    `usage` replaces the tokens that were counted; `delay_s` comes before the answer; `release` is waited for
    before it, `rest` after the first piece; behind `cut_after` pieces the connection is broken off.
    """

    text: str = ""
    tool_calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    usage: Any = None
    status: int = 200
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    refusal: str | None = None
    finish: str | None = None
    raw: bytes | None = None
    delay_s: float = 0
    release: threading.Event | None = None
    rest: threading.Event | None = None
    cut_after: int | None = None
    model: str | None = None


def said(text: str, **more: Any) -> Scripted:
    """A plain answer."""
    return Scripted(text, **more)


def calls(*tool_calls: tuple[str, dict[str, Any]], text: str = "") -> Scripted:
    """An answer that calls tools, each a name and its arguments."""
    return Scripted(text, tool_calls=tool_calls)


def rate_limited(retry_after: float | None = 1) -> Scripted:
    """429, with the seconds after which to come again."""
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    return Scripted("Rate limit reached", status=429, code="rate_limit_exceeded", headers=headers)


def context_too_long() -> Scripted:
    """400, as OpenAI says it."""
    said = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000."
    return Scripted(said, status=400, code="context_length_exceeded")


def outage(status: int = 503) -> Scripted:
    """A server that is not well."""
    return Scripted("The server is overloaded", status=status)


def refusing(text: str = "I can't help with that.") -> Scripted:
    """The model's refusal."""
    return Scripted(refusal=text)


def broken_json() -> Scripted:
    """An answer of 200 that is no JSON."""
    return Scripted(raw=b'{"id": "x", "choices": [{"message"')


def cut_off(text: str, pieces: int = 1) -> Scripted:
    """An answer whose connection breaks after so many pieces; one that is not in pieces, in its middle."""
    return Scripted(text, cut_after=pieces)


def lying(text: str, usage: Any) -> Scripted:
    """An answer with these tokens, whatever they are."""
    return Scripted(text, usage=usage)


def held(text: str) -> Scripted:
    """An answer that waits until its `release` is set."""
    return Scripted(text, release=threading.Event())


def paused(text: str) -> Scripted:
    """An answer in pieces whose second one waits until its `rest` is set."""
    return Scripted(text, rest=threading.Event())


class ModelServer:
    """The server, and what it was asked: of each request its path, its headers and its body."""

    def __init__(self, script: Iterable[Scripted] = (), delay_s: float = 0) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.open = 0
        self.most_open = 0
        self.port = 0
        self._delay_s = delay_s
        self._script: deque[Scripted] = deque(script)

    @property
    def url(self) -> str:
        """Where it listens; Ollama's base URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def openai(self) -> str:
        """OpenAI's base URL."""
        return f"{self.url}/v1"

    def script(self, *answers: Scripted) -> None:
        """Add answers."""
        self._script.extend(answers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False: the connection is over."""
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
        path = first.split(" ")[1]
        self.requests.append((path, headers, body))
        if path.endswith(("/embeddings", "/api/embed")):
            await _send(writer, 200, json.dumps(_embedded(path, body)).encode())
            return True
        answer = self._script.popleft() if self._script else said(_last(body))
        if self._delay_s or answer.delay_s:
            await asyncio.sleep(self._delay_s or answer.delay_s)
        await _until(answer.release)
        if answer.raw is not None or answer.status != 200:
            raw = answer.raw if answer.raw is not None else refusal_body(path, answer)
            await _send(writer, answer.status, raw, answer.headers)
            return True
        answer = replace(answer, model=answer.model or body.get("model"))
        in_pieces = body.get("stream", path.startswith("/api/"))
        if not in_pieces:
            whole = ollama_whole(answer, body) if path.startswith("/api/") else openai_whole(answer, body)
            raw = json.dumps(whole).encode()
            cut = None if answer.cut_after is None else len(raw) // 2
            await _send(writer, 200, raw, answer.headers, cut=cut)
            return cut is None
        return await _send_pieces(writer, path, answer, body)


async def _until(event: threading.Event | None) -> None:
    if event is not None:
        await asyncio.to_thread(event.wait)


async def _send_pieces(
    writer: asyncio.StreamWriter, path: str, answer: Scripted, body: dict[str, Any]
) -> bool:
    ollama = path.startswith("/api/")
    kind = b"application/x-ndjson" if ollama else b"text/event-stream"
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: " + kind + b"\r\n\r\n")
    number = 0
    async for piece in _pieces(ollama, answer, body):
        if answer.cut_after is not None and number > answer.cut_after:
            writer.transport.abort()
            return False
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
        number += 1
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


async def _pieces(ollama: bool, answer: Scripted, body: dict[str, Any]) -> AsyncIterator[bytes]:
    made = ollama_piece(answer, body) if ollama else openai_pieces(answer, body)
    for number, piece in enumerate(made):
        if number == 2:  # behind the role and the first words
            await _until(answer.rest)
        line = json.dumps(piece).encode()
        yield line + b"\n" if ollama else b"data: " + line + b"\n\n"
    if not ollama:
        yield b"data: [DONE]\n\n"


async def _send(
    writer: asyncio.StreamWriter,
    status: int,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    cut: int | None = None,
) -> None:
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body[:cut])
    await writer.drain()
    if cut is not None:
        writer.close()


def _last(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _embedded(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """A vector of a text: its length, and the number of its words."""
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    vectors = [[float(len(text)), float(len(text.split()))] for text in texts]
    if path.endswith("/api/embed"):
        return {"model": body["model"], "embeddings": vectors, "prompt_eval_count": len(texts)}
    data = [{"object": "embedding", "index": i, "embedding": one} for i, one in enumerate(vectors)]
    usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


@contextmanager
def model_server(script: Iterable[Scripted] = (), delay_s: float = 0) -> Iterator[ModelServer]:
    """A server in a thread of its own, on a free port."""
    server, ready = ModelServer(script, delay_s), threading.Event()
    loop = asyncio.new_event_loop()

    async def listen() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=2**24)
        server.port = listening.sockets[0].getsockname()[1]
        ready.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.create_task(listen())  # noqa: RUF006 - it is done before anything is asked
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    if not ready.wait(PATIENCE_S):
        raise RuntimeError("the server of models does not listen")
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)


async def _main() -> None:
    server = ModelServer(delay_s=float(sys.argv[1]))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=2**24, backlog=1024)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until whoever started it is gone


if __name__ == "__main__":
    asyncio.run(_main())
