"""MCP clients that are enemies: each request gets one clear error, and the log gets nothing."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

from noesium_stream.client import Client
from noesium_stream.log import EventLog
from noesium_stream.mcp_server.calls import KEY_FIELD, MOST_OF_ONE
from noesium_stream.serving.gate import MAX_BODY_BYTES
from noesium_stream.serving.tokens import token_hash
from tests.support.a2a import Desk
from tests.support.mcp_serving import REVISION, Place, Served

META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": REVISION,
    "Mcp-Method": "tools/call",
    "Mcp-Name": "desk.upper",
}
ARGUMENTS = {"text": "a"}
MOST_SAID = 600
"""Bytes of an error; what a client has sent may come back in it, but not at length."""


class Lie(NamedTuple):
    """A request, and the statuses that may refuse it; `headers` go beside, or instead of, the good ones."""

    body: bytes
    statuses: tuple[int, ...] = (400,)
    headers: Mapping[str, str] = {}


def request(name: str = "desk.upper", arguments: Any = ARGUMENTS, **more: Any) -> dict[str, Any]:
    meta = {**META, **more.pop("meta", {})}
    params = {"name": name, "arguments": arguments, "_meta": meta, **more.pop("params", {})}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params, **more}


def body(*given: Any, **more: Any) -> bytes:
    return json.dumps(request(*given, **more)).encode()


def deep(depth: int) -> bytes:
    return body().replace(b'"text": "a"', b'"text": "a", "x": ' + b"[" * depth + b"]" * depth)


def keyed(key: Any) -> bytes:
    return body(meta={KEY_FIELD: key})


GOOD = body()
SHAPES = {
    "empty": Lie(b""),
    "half": Lie(GOOD[:-1]),
    "no UTF-8": Lie(b"\xff\xfe" + GOOD),
    "a number": Lie(b"7"),
    "null": Lie(b"null"),
    "a batch": Lie(b"[" + GOOD + b"," + GOOD + b"]"),
    "brackets alone": Lie(b"[" * 400_000),
    "deep": Lie(deep(100_000)),
    "a number of many digits": Lie(
        body(arguments={"text": 1}).replace(b'"text": 1', b'"text": ' + b"9" * 5_000)
    ),
    "an id that is null": Lie(body(id=None)),
    "an id that is an object": Lie(body(id={})),
    "another JSON-RPC": Lie(body(jsonrpc="1.0")),
    "a result": Lie(b'{"jsonrpc": "2.0", "id": 1, "result": {}}'),
    "no method": Lie(b'{"jsonrpc": "2.0", "id": 1}'),
    "too large": Lie(body(arguments={"text": "x" * MAX_BODY_BYTES}), (413,)),
}
"""What is no request."""
CONTENTS = {
    "half a surrogate pair": Lie(body(arguments={"text": "\ud800"})),
    "an integer beyond 2^53": Lie(
        body("desk.refund", {"amount": 2**70}), headers={"Mcp-Name": "desk.refund"}
    ),
    "arguments that are a list": Lie(body(arguments=[1])),
    "a state that was never sealed": Lie(body(params={"requestState": "desk.x"})),
    "a state that is large": Lie(body(params={"requestState": "x" * 500_000})),
    "a key that is long": Lie(keyed("x" * 257)),
    "a key with a terminal's escape": Lie(keyed("a\x1b[2J")),
    "a key that is no text": Lie(keyed({})),
    "a version that is none": Lie(body(meta={"io.noesium/version": "^^"})),
    "_meta that is a list": Lie(body(params={"_meta": [1]})),
    "capabilities that are none": Lie(body(meta={"io.modelcontextprotocol/clientCapabilities": [1]})),
    "a tool that is not there": Lie(body("desk.none"), headers={"Mcp-Name": "desk.none"}),
    "a tool by a path": Lie(body("../desk.upper"), headers={"Mcp-Name": "../desk.upper"}),
    "a method that is not there": Lie(body(method="admin/stop"), (404,), {"Mcp-Method": "admin/stop"}),
}
"""Requests with something in them that cannot be."""
ENVELOPES = {
    "text": Lie(GOOD, headers={"Content-Type": "text/plain"}),
    "no answer that is known": Lie(GOOD, (406,), {"Accept": "text/html"}),
    "a page of elsewhere": Lie(GOOD, (403,), {"Origin": "http://evil.example"}),
    "a page without a name": Lie(GOOD, (403,), {"Origin": "null"}),
    "a name that was rebound": Lie(GOOD, (421,), {"Host": "evil.example"}),
    "a revision that is not there": Lie(GOOD, headers={"MCP-Protocol-Version": "1999-01-01"}),
    "another revision in the body": Lie(body(meta={"io.modelcontextprotocol/protocolVersion": "1999-01-01"})),
    "another tool in the header": Lie(GOOD, headers={"Mcp-Name": "desk.wait"}),
    "another method in the header": Lie(GOOD, headers={"Mcp-Method": "tools/list"}),
    "Base64 that is none": Lie(GOOD, headers={"Mcp-Name": "=?base64?!!!?="}),
}
"""Requests whose headers do not fit."""


async def ends(log: EventLog) -> dict[int, int]:
    """The ends of the inbox: a command that was written moves one."""
    return dict(await log.end(log.topology.inbox("desk")))


@asynccontextmanager
async def attacked(place: Place, *args: str) -> AsyncIterator[Served]:
    """A server that has to live, and answer, behind the attack; with a log that has to be as before."""
    async with place.working(Desk) as log:
        with place.serving(*args) as server:
            before = await ends(log)
            yield server
            assert await ends(log) == before
            async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
                headers = {**HEADERS, "Authorization": "Bearer secret_a"}
                answer = await http.post(server.url, content=GOOD, headers=headers)
            assert answer.json()["result"]["structuredContent"] == "A"
            assert [line for line in server.process.err if "serving MCP" not in line] == []
            assert server.process.out == []
        async with Client(log) as runs:
            assert len(await runs.list_runs()) == 1


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("lies", [SHAPES, CONTENTS, ENVELOPES], ids=["shapes", "contents", "envelopes"])
async def test_a_request_that_is_wrong_gets_one_error_and_starts_nothing(
    lies: Mapping[str, Lie], place: Place
) -> None:
    async with attacked(place) as server, httpx.AsyncClient(timeout=60, trust_env=False) as http:
        for name, lie in lies.items():
            answer = await http.post(server.url, content=lie.body, headers={**HEADERS, **lie.headers})
            assert answer.status_code in lie.statuses, f"{name}: {answer.status_code} {answer.text[:300]}"
            assert len(answer.content) <= MOST_SAID, name
            assert answer.text.isprintable(), name
            if answer.headers.get("content-type") == "application/json" and answer.status_code == 400:
                assert set(answer.json()["error"]) <= {"code", "message", "data"}, name
                assert "result" not in answer.json(), name


@pytest.mark.parametrize("depth", [200, 300])
async def test_arguments_that_are_deep_are_refused_as_those_of_a_tool(depth: int, place: Place) -> None:
    async with attacked(place) as server, httpx.AsyncClient(timeout=60, trust_env=False) as http:
        answer = (await http.post(server.url, content=deep(depth), headers=HEADERS)).json()
    assert answer["result"]["isError"]


async def test_notifications_are_taken_and_do_nothing(place: Place) -> None:
    async with attacked(place) as server, httpx.AsyncClient(timeout=60, trust_env=False) as http:
        for method in ("notifications/cancelled", "notifications/none", "tools/call"):
            told = {key: value for key, value in request(method=method).items() if key != "id"}
            headers = {**HEADERS, "Mcp-Method": method}
            for _ in range(20):
                answer = await http.post(server.url, json=told, headers=headers)
                assert (answer.status_code, answer.content) == (202, b"")


async def test_a_body_without_an_end_is_refused(place: Place) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"[" * 65_536

    async with attacked(place) as server, httpx.AsyncClient(timeout=60, trust_env=False) as http:
        try:
            answer = await http.post(server.url, content=endless(), headers=HEADERS)
        except httpx.TransportError:
            return  # the connection was closed while more was sent
        assert answer.status_code == 413


async def test_other_methods_of_http_and_other_paths_are_refused(place: Place) -> None:
    async with attacked(place) as server, httpx.AsyncClient(timeout=60, trust_env=False) as http:
        for method in ("GET", "PUT", "DELETE", "OPTIONS", "TRACE"):
            assert (await http.request(method, server.url, headers=HEADERS)).status_code in (404, 405)
        for path in ("/", "/mcp/../etc/passwd", "/mcp/%2e%2e", "/tasks"):
            address = server.url.removesuffix("/mcp") + path
            assert (await http.post(address, content=GOOD, headers=HEADERS)).status_code in (404, 405)


async def test_clients_that_send_slowly_keep_nobody_out(place: Place) -> None:
    async with attacked(place) as server:
        parts = urlsplit(server.url)
        open_ones = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(100)]
        for number, (_, writer) in enumerate(open_ones):
            writer.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            if number % 2:
                writer.write(b"Content-Length: 1000\r\n\r\n{")
        for _ in range(10):
            listed = await server.ask("tools/list", {})
            assert listed["tools"]
        for _, writer in open_ones:
            writer.close()


def bearers(path: Path) -> str:
    names = {"secret_a": "alice", "secret_b": "bob"}
    lines = [f'"{token_hash(token)}" = "{name}"' for token, name in names.items()]
    (path / "tokens.toml").write_text("\n".join(["[tokens]", *lines]))
    return str(path / "tokens.toml")


async def asked(server: Served, token: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    answer = await server.post(method, dict(params), Authorization=f"Bearer {token}")
    found: dict[str, Any] = answer.json()
    return found


async def test_a_task_of_somebody_else_is_not_there(place: Place, tmp_path: Path) -> None:
    async with place.working(Desk) as log, Client(log) as runs:
        with place.serving("--task-after", "0", "--tokens", bearers(tmp_path)) as server:
            call = {"name": "desk.refund", "arguments": {"amount": 7}}
            task = (await asked(server, "secret_a", "tools/call", call))["result"]["taskId"]
            while (await asked(server, "secret_a", "tasks/get", {"taskId": task}))["result"][
                "status"
            ] == "working":
                await asyncio.sleep(0.02)
            before = await ends(log)
            answers = {"inputResponses": {"x": {"action": "accept", "content": {}}}}
            another = task[:-1] + ("1" if task.endswith("0") else "0")
            missing = await asked(server, "secret_b", "tasks/get", {"taskId": another})
            for method, more in (("tasks/get", {}), ("tasks/update", answers), ("tasks/cancel", {})):
                assert await asked(server, "secret_b", method, {"taskId": task, **more}) == missing
            for forged in (
                "x",
                "desk.",
                f"desk.{'0' * 36}",
                "../desk." + task[5:],
                task + "\u0000",
                task.upper(),
            ):
                refused = await server.post(
                    "tasks/get",
                    {"taskId": forged},
                    **{"Authorization": "Bearer secret_a", "Mcp-Name": encoded(forged)},
                )
                assert refused.json()["error"] == missing["error"], forged
            assert (await asked(server, "secret_x", "tasks/get", {"taskId": task})) == {
                "error": "a valid bearer token is missing"
            }
            assert await ends(log) == before
        assert len(await runs.list_runs()) == 1
    assert missing["error"]["message"] == "There is no such task."


def encoded(text: str) -> str:
    """A header's form of a text that no header can hold (SEP-2243)."""
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


async def test_a_sealed_state_is_of_its_requester_and_its_call(place: Place, tmp_path: Path) -> None:
    call = {"name": "desk.refund", "arguments": {"amount": 7}}
    async with place.working(Desk) as log, Client(log) as runs:
        with place.serving("--tokens", bearers(tmp_path)) as server:
            first = await server.post("tools/call", dict(call), tasks=False, Authorization="Bearer secret_a")
            state = first.json()["result"]["requestState"]
            before = await ends(log)
            stolen = await server.post(
                "tools/call", {**call, "requestState": state}, tasks=False, Authorization="Bearer secret_b"
            )
            assert stolen.json()["error"]["code"] == -32602
            assert await ends(log) == before
        assert len(await runs.list_runs()) == 1


async def test_one_requester_with_many_calls_keeps_no_other_out(place: Place, tmp_path: Path) -> None:
    wait = {"name": "desk.wait", "arguments": {}}
    async with place.working(Desk):
        with place.serving("--tokens", bearers(tmp_path)) as server:
            flood = [
                asyncio.create_task(
                    server.post("tools/call", dict(wait), tasks=False, Authorization="Bearer secret_b")
                )
                for _ in range(MOST_OF_ONE + 8)
            ]
            done, _ = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
            for refused in done:
                assert "Too many calls" in refused.result().json()["error"]["message"]
            said = await server.post(
                "tools/call",
                {"name": "desk.upper", "arguments": {"text": "a"}},
                tasks=False,
                Authorization="Bearer secret_a",
            )
            assert said.json()["result"]["structuredContent"] == "A"
            for call in flood:
                call.cancel()
            await asyncio.gather(*flood, return_exceptions=True)
