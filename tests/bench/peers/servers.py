"""Servers that peers need: Postgres, Restate's and Temporal's, each in an empty folder, ended afterwards."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg

from noesium_stream.log.broker.local import free_port
from tests.bench.peers.installing import NotInstalledError
from tests.bench.peers.process import running
from tests.support.postgres import programs, running_postgres

_START_S = 60.0
_PAUSE_S = 0.05


@asynccontextmanager
async def postgres() -> AsyncIterator[str]:
    """The URL of a database whose server syncs each commit, as it ships.

    Raises `NotInstalledError`.
    """
    if programs() is None:
        raise NotInstalledError("Postgres is not installed: neither as a package of Python nor of Debian")
    with running_postgres(("max_connections=100",)) as server:
        server.run("postgres", "CREATE DATABASE bench OWNER clerk")
        yield f"postgresql://clerk@/bench?host={server.folder}"


def table_bytes(dsn: str) -> int:
    """Bytes of the database's tables and indexes; the write-ahead log is recycled and left out."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("SELECT pg_database_size('bench')").fetchone()
        assert row is not None
        return int(row[0])


@asynccontextmanager
async def restate(modules: Path, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """A server of one node with the settings that it ships with; ports for its callers.

    Raises `NotInstalledError`.
    """
    found = sorted(modules.glob("@restatedev/restate-server-*/bin/restate-server"))
    if not found:
        raise NotInstalledError("npm has no server of Restate for this machine")
    ingress, admin, node, endpoint = (free_port() for _ in range(4))
    settings = {
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_LOG_FILTER": "warn",
        "RESTATE_DISABLE_TELEMETRY": "true",
    }
    command = [found[0], "--no-logo", "--base-dir", folder / "data", "--node-name", "bench"]
    async with running(command, folder.parent / f"{folder.name}.server", settings) as server:
        draining = asyncio.create_task(_drain(server.process.stdout))
        try:
            for url in (f"http://127.0.0.1:{admin}/health", f"http://127.0.0.1:{ingress}/restate/health"):
                await _answers(url, server.process)
            yield {
                "ingress": f"http://127.0.0.1:{ingress}",
                "admin": f"http://127.0.0.1:{admin}",
                "port": endpoint,
            }
        finally:
            draining.cancel()


@asynccontextmanager
async def temporal(program: Path, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """The development server with a database file."""
    port = free_port()
    command = [program, "server", "start-dev", "--headless", "--port", str(port), "--log-level", "error"]
    database = ["--db-filename", folder / "temporal.db"]
    async with running([*command, *database], folder.parent / f"{folder.name}.server") as server:
        draining = asyncio.create_task(_drain(server.process.stdout))
        try:
            await _listens(port, server.process)
            yield {"address": f"127.0.0.1:{port}"}
        finally:
            draining.cancel()


async def _drain(stream: asyncio.StreamReader | None) -> None:
    assert stream is not None
    while await stream.read(1 << 16):
        pass


async def _answers(url: str, process: asyncio.subprocess.Process) -> None:
    """Return when this address answers with success."""
    deadline = time.monotonic() + _START_S
    while not await asyncio.to_thread(_succeeds, url):
        _check(process, deadline)
        await asyncio.sleep(_PAUSE_S)


def _succeeds(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def _listens(port: int, process: asyncio.subprocess.Process) -> None:
    """Return when this port takes connections."""
    deadline = time.monotonic() + _START_S
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            _check(process, deadline)
            await asyncio.sleep(_PAUSE_S)
        else:
            writer.close()
            return


def _check(process: asyncio.subprocess.Process, deadline: float) -> None:
    if process.returncode is not None:
        raise RuntimeError(f"the server ended with {process.returncode}")
    if time.monotonic() > deadline:
        raise TimeoutError(f"the server does not answer within {_START_S:g} s")
