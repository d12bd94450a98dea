"""A worker's health as a probe sees it: over HTTP, also while the event loop does not turn."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest

from noesium_stream.cli.commands.worker import _address
from noesium_stream.clock import VirtualClock
from noesium_stream.errors import ConfigError
from noesium_stream.worker.health import CONNECTION_S, MAX_CONNECTIONS, Health, HealthServer
from tests.support.reading import PATIENCE_S

ANYWHERE = ("127.0.0.1", 0)


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


async def ask(url: str) -> tuple[int, Any]:
    return await asyncio.to_thread(get, url)


async def test_a_worker_is_ready_when_nothing_is_waited_for() -> None:
    why = ["doer is taking partition 3"]
    async with HealthServer(ANYWHERE, lambda: Health(why, {"doer": [1]}), VirtualClock()) as server:
        assert await ask(f"{server.url}/livez") == (200, {"live": True, "why": []})
        status, said = await ask(f"{server.url}/readyz")
        assert (status, said["ready"], said["why"]) == (503, False, why)
        why.clear()
        server.look_now()
        assert await ask(f"{server.url}/readyz?verbose") == (
            200,
            {"ready": True, "why": [], "partitions": {"doer": [1]}},
        )


async def test_a_loop_that_does_not_turn_is_dead_and_the_answer_comes_all_the_same() -> None:
    clock = VirtualClock()
    async with HealthServer(ANYWHERE, Health, clock, stalled_s=30) as server:
        server.look_now()
        clock.advance(29)
        assert get(f"{server.url}/livez")[0] == 200  # asked from the loop's own thread: it does not turn now
        clock.advance(2)
        status, said = get(f"{server.url}/livez")
        assert (status, said["why"]) == (503, ["the event loop has not turned for 31 s"])
        assert get(f"{server.url}/readyz")[0] == 503


async def test_other_paths_say_which_there_are() -> None:
    async with HealthServer(ANYWHERE, Health, VirtualClock()) as server:
        assert await ask(f"{server.url}/health") == (404, {"why": ["there are /livez and /readyz"]})


def connected(server: HealthServer, request: bytes = b"") -> socket.socket:
    idle = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=PATIENCE_S)
    idle.sendall(request)
    return idle


async def test_idle_connections_do_not_keep_a_probe_from_its_answer() -> None:
    async with HealthServer(ANYWHERE, Health, VirtualClock()) as server:
        idle = [connected(server, b"GET /livez" if n % 2 else b"") for n in range(3 * MAX_CONNECTIONS)]
        assert (await ask(f"{server.url}/livez"))[0] == 200
        for early in idle[: 2 * MAX_CONNECTIONS]:
            assert await asyncio.to_thread(early.recv, 1) == b""
        for one in idle:
            one.close()


async def test_a_connection_that_says_nothing_is_closed_after_its_time() -> None:
    clock = VirtualClock()
    async with HealthServer(ANYWHERE, Health, clock) as server:
        with connected(server) as silent, connected(server, b"GET /livez HTTP/1.0\r\nX: ") as slow:
            assert (await ask(f"{server.url}/livez"))[0] == 200  # so both are accepted
            clock.advance(CONNECTION_S)
            assert await asyncio.to_thread(silent.recv, 1) == b""
            assert await asyncio.to_thread(slow.recv, 1) == b""


async def test_connections_that_break_are_not_reported(capfd: pytest.CaptureFixture[str]) -> None:
    async with HealthServer(ANYWHERE, Health, VirtualClock()) as server:
        for _ in range(5):
            broken = connected(server, b"GET /livez HTTP/1.0\r\n\r\n")
            broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            broken.close()  # with a reset
        assert (await ask(f"{server.url}/livez"))[0] == 200
    assert capfd.readouterr().err == ""


async def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    async with HealthServer(ANYWHERE, Health, VirtualClock()) as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"listen at 127.0.0.1:{port}"):
            async with HealthServer(("127.0.0.1", port), Health, VirtualClock()):
                pass


async def test_a_host_that_can_have_no_name_is_an_error() -> None:
    with pytest.raises(ConfigError, match="Nobody can listen at"):
        async with HealthServer(("ä" * 64, 0), Health, VirtualClock()):
            pass


@pytest.mark.parametrize("text", ["", "host:", "\N{SUPERSCRIPT TWO}", "9" * 5_000, "-1", "80 "])
def test_what_is_no_port_is_an_error_that_says_so(text: str) -> None:
    with pytest.raises(ConfigError, match="is no port"):
        _address(text)
