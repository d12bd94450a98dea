"""`step.invoke("a2a:…")`: calls of agents of other systems over real HTTP."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import current_step
from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client
from noesium_stream.config import ExecutionMode
from noesium_stream.errors import RunFailedError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.log import open_log
from noesium_stream.serving.tokens import token_hash
from noesium_stream.worker import Worker
from tests.support.a2a import Desk, Place
from tests.support.reading import PATIENCE_S, eventually

Answer = Callable[[str, bytes], tuple[int, dict[str, str], bytes] | None]


class Visit(TypedDict, total=False):
    target: str
    arguments: dict[str, Any]
    again: bool
    found: Any


class Visitor(BaseGraphicAgent):
    agent_type = "visitor"

    def get_state_class(self) -> type[Any]:
        return Visit

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(Visit)
        graph.add_node("visit", self.visit)
        graph.add_edge(START, "visit")
        return graph

    async def visit(self, state: Visit) -> dict[str, Any]:
        kind = SideEffectClass.IDEMPOTENT if state.get("again") else None
        step = current_step()
        return {"found": await step.invoke(state["target"], state["arguments"], side_effects=kind)}

    def result(self, state: dict[str, Any]) -> Any:
        return state["found"]


class StrictVisitor(Visitor):
    agent_type = "strict"
    execution_mode = ExecutionMode.STRICT


@asynccontextmanager
async def visiting(tmp_path: Path, agent: type[BaseGraphicAgent] = Visitor) -> AsyncIterator[Client]:
    """A worker of the caller, on a log of its own."""
    log = await open_log("memory://")
    try:
        async with Worker(log, [agent], home=tmp_path / "caller"), Client(log) as client:
            yield client
    finally:
        await log.close()


@asynccontextmanager
async def peer(answer: Answer) -> AsyncIterator[str]:
    """A server of HTTP; it gives what `answer` makes of path and body, or closes the connection (None)."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            sizes = [line for line in head.lower().splitlines() if line.startswith("content-length:")]
            body = await reader.readexactly(int(sizes[0].partition(":")[2])) if sizes else b""
            made = answer(head.split()[1], body)
            if made is not None:
                status, headers, data = made
                lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(data)}", "Connection: close"]
                lines += [f"{name}: {value}" for name, value in headers.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + data)
                await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


def card(url: str) -> bytes:
    return json.dumps(
        {
            "name": "peer",
            "description": "a peer",
            "version": "1",
            "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "capabilities": {},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["s"]}],
        }
    ).encode()


async def outcome(client: Client, target: str, **more: Any) -> Any:
    """What a call gives, or the message of its error."""
    run = await client.start("visitor", {"target": target, "arguments": {"text": "good day"}, **more})
    try:
        return await run.result(PATIENCE_S)
    except RunFailedError as error:
        return error.message


async def test_a_node_calls_an_agent_of_another_system(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.working(Desk) as log, visiting(tmp_path) as client:
        with place.serving() as server:
            target = f"a2a:{server.url}#desk.upper"
            run = await client.start("visitor", {"target": target, "arguments": {"text": "good day"}})
            assert await run.result(PATIENCE_S) == "GOOD DAY"
            effects = [event async for event in run.events() if event.event_type == "effect.requested"]
            async with Client(log) as there:
                [info] = await there.list_runs()
                [asked] = [one async for one in there.run_handle("desk", info.run_id).events()][:1]
            failed = await outcome(client, target.replace("upper", "none"))
            asks = await client.start(
                "visitor", {"target": target.replace("upper", "refund"), "arguments": {"amount": 7}}
            )
            with pytest.raises(RunFailedError, match=r"input required: Refund 7\?"):
                await asks.result(PATIENCE_S)
            async with Client(log) as there:
                await eventually(lambda: _is_cancelled(there))
    [effect] = effects
    assert effect.payload["name"] == target
    assert effect.payload["effect_class"] == "external"
    # The peer tells repeated messages by the key of the effect.
    assert asked.metadata["a2a"]["message_id"] == effect.payload["idempotency_key"]
    assert "No skill desk.none is on offer" in failed


async def _is_cancelled(client: Client) -> bool:
    return any(run.status == "cancelled" for run in await client.list_runs())


async def test_a_message_that_is_taken_and_not_answered_has_an_unknown_outcome(tmp_path: Path) -> None:
    asked: list[Any] = []

    def answer(path: str, body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        if path.endswith("agent-card.json"):
            return 200, {}, card(url)
        asked.append(json.loads(body)["params"]["message"])
        if len(asked) == 1:
            return None
        said = {"message": {"messageId": "r", "role": "ROLE_AGENT", "parts": [{"data": {"n": 7}}]}}
        return (
            200,
            {"Content-Type": "application/json"},
            json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": said}).encode(),
        )

    async with peer(answer) as url, visiting(tmp_path) as client:
        run = await client.start("visitor", {"target": f"a2a:{url}", "arguments": {"text": "pay"}})
        await eventually(run.unresolved_effects)
        [effect] = await run.unresolved_effects()
        assert "has not answered" in effect.reason
        assert len(asked) == 1
        await run.resolve_effect(effect.effect_id, "retry")
        assert await run.result(PATIENCE_S) == {"n": 7}
    assert asked[0]["messageId"] == asked[1]["messageId"]
    assert asked[0]["parts"][0]["data"] == {"text": "pay"}


async def test_an_idempotent_call_that_another_worker_makes_again_meets_itself(tmp_path: Path) -> None:
    place = Place(tmp_path)
    caller = await open_log("memory://")
    async with place.working(Desk) as log, Client(caller) as client, Client(log) as there:
        with place.serving() as server:
            given = {"target": f"a2a:{server.url}#desk.wait", "arguments": {}, "again": True}
            async with Worker(caller, [Visitor], home=tmp_path / "one", grace=0):
                run = await client.start("visitor", given)
                await eventually(there.list_runs)
            [info] = await there.list_runs()
            async with Worker(caller, [Visitor], home=tmp_path / "two"):
                await there.run_handle("desk", info.run_id).signal("go", "done")
                assert await run.result(PATIENCE_S) == "done"
        assert len(await there.list_runs()) == 1
    await caller.close()


async def test_a_peer_gets_the_token_that_is_for_it_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    (tmp_path / "tokens.toml").write_text(f'[tokens]\n"{token_hash("secret_a")}" = "alice"')
    async with place.working(Desk) as log, visiting(tmp_path) as client:
        with place.serving("--tokens", str(tmp_path / "tokens.toml")) as server:
            host = server.url.removeprefix("http://").rstrip("/")
            peers = tmp_path / "peers.toml"
            monkeypatch.setenv("NOESIUM_A2A_TOKENS", str(peers))
            peers.write_text('[tokens]\n"other.example" = "secret_a"')
            refused = await outcome(client, f"a2a:{server.url}#desk.upper")
            peers.write_text(f'[tokens]\n"{host}" = "secret_a"')
            taken = await outcome(client, f"a2a:{server.url}#desk.upper")
            peers.write_text('[tokens]\n"other.example" = 7')
            wrong = await outcome(client, f"a2a:{server.url}#desk.upper")
        async with Client(log) as there:
            assert len(await there.list_runs(where={"by": "alice"})) == 1
    assert "cannot be called" in refused
    assert "401" in refused
    assert taken == "GOOD DAY"
    assert "have no table [tokens]" in wrong


async def test_what_a_peer_says_wrong_is_one_sentence(tmp_path: Path) -> None:
    async def said(answer: Answer) -> Any:
        async with peer(answer) as url:
            return await outcome(client, f"a2a:{url}")

    async with visiting(tmp_path) as client:
        assert "has no agent card" in await said(lambda path, body: (404, {}, b""))
        assert "has no agent card" in await said(lambda path, body: (200, {}, b"{"))
        moved = {"Location": "http://127.0.0.1:1/"}
        assert "has no agent card" in await said(lambda path, body: (302, moved, b""))
        large = b" " * 4_000_001
        assert "more than 4,000,000 bytes" in await said(lambda path, body: (200, {}, large))
        packed = {"Content-Encoding": "gzip"}
        assert "compressed" in await said(lambda path, body: (200, packed, gzip.compress(b" " * 10_000_000)))
        elsewhere = card("https://elsewhere.example/")
        assert "do not allow calls of elsewhere.example" in await said(
            lambda path, body: (200, {}, elsewhere)
        )
        async with peer(lambda path, body: (200, {}, card(url)) if "card" in path else (403, {}, b"")) as url:
            assert "cannot be called" in await outcome(client, f"a2a:{url}")
        async with peer(lambda path, body: None) as url:
            pass
        assert "has no agent card" in await outcome(client, f"a2a:{url}")


async def test_data_does_not_decide_where_the_network_goes(tmp_path: Path) -> None:
    async with visiting(tmp_path) as client:
        for target, said in [
            ("a2a:https://agents.example.com/", "NOESIUM_A2A_ALLOW=agents.example.com"),
            ("a2a:http://agents.example.com/", "without TLS"),
            ("a2a:https://me:secret@127.0.0.1/", "no URL of an agent"),
            ("a2a:file:///etc/passwd", "no URL of an agent"),
            ("a2a:https://127.0.0.1/?to=x", "names no agent"),
        ]:
            run = await client.start("visitor", {"target": target, "arguments": {}})
            with pytest.raises(RunFailedError) as failed:
                await run.result(PATIENCE_S)
            assert said in str(failed.value)


async def test_a_strict_node_calls_nobody_outside(tmp_path: Path) -> None:
    async with visiting(tmp_path, StrictVisitor) as client:
        run = await client.start("strict", {"target": "a2a:http://127.0.0.1:1/", "arguments": {}})
        with pytest.raises(RunFailedError, match="STRICT"):
            await run.result(PATIENCE_S)
