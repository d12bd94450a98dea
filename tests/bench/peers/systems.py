"""The systems that stand side by side: where each keeps what it writes, and how durable that is.

Each is opened anew for each row of a round, in an empty folder. The broker of Kafka alone is shared.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from noesium_stream.log.broker.local import LocalBroker
from tests.bench.peers import servers
from tests.bench.peers.installing import Installer
from tests.support.kafka import LOCAL_SETTINGS, remove_topics

PROGRAMS = Path(__file__).parent / "programs"
TEMPORAL_MINUTES = 10.0


@dataclass(frozen=True)
class Place:
    """Where a system's program runs: its Python, its settings, and how many bytes are written there."""

    python: Path
    asked: dict[str, Any]
    bytes_used: Callable[[], int]


class Ground:
    """What all systems stand on: the installer, and the broker that is started when it is first needed.

    Args:
        folder: for everything that is written.
        installer: of the peers.
        stack: closes the broker.
    """

    def __init__(self, folder: Path, installer: Installer, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.installer = installer
        self._stack = stack
        self._broker: LocalBroker | None = None

    async def broker(self) -> LocalBroker:
        """The broker of the Python packages, running."""
        if self._broker is None:
            broker = LocalBroker(self.folder / "kafka", 0, settings=LOCAL_SETTINGS)
            await asyncio.to_thread(broker.up)
            self._stack.callback(broker.kill)
            self._broker = broker
        return self._broker

    def fresh(self, name: str) -> Path:
        """A new folder."""
        folder = self.folder / f"{name}-{secrets.token_hex(4)}"
        folder.mkdir()
        return folder


Open = Callable[[Ground, Path], AbstractAsyncContextManager[Place]]


@dataclass(frozen=True)
class System:
    """One side.

    `in_process`: its runs are executed by the process that asks for them, as its own guides do it.
    `bulk`: commands may be appended in bulk.
    """

    name: str
    label: str
    durability: str
    program: str
    open: Open = field(repr=False)
    in_process: bool = False
    bulk: bool = False


def disk_bytes(*paths: Path) -> int:
    """Bytes of all blocks of all files in these folders."""
    return sum(one.stat().st_blocks * 512 for path in paths for one in path.rglob("*") if one.is_file())


@asynccontextmanager
async def _ours_on_sqlite(durability: str, ground: Ground, folder: Path) -> AsyncIterator[Place]:
    url = f"sqlite:///{folder / 'log.db'}?partitions=1"
    asked = {"url": url, "home": str(folder / "home"), "durability": durability}
    yield Place(Path(sys.executable), asked, lambda: disk_bytes(folder))


@asynccontextmanager
async def _ours_on_kafka(durability: str, ground: Ground, folder: Path) -> AsyncIterator[Place]:
    broker = await ground.broker()
    namespace = f"peer{secrets.token_hex(4)}"
    address = broker.status().address.replace("localhost", "127.0.0.1")
    url = f"kafka://{address}?namespace={namespace}&partitions=1"
    asked = {"url": url, "home": str(folder / "home"), "durability": durability}

    def used() -> int:
        return disk_bytes(folder, *broker.data_dir.glob(f"{namespace}.*"))

    try:
        yield Place(Path(sys.executable), asked, used)
    finally:
        await asyncio.to_thread(remove_topics, address, namespace)


@asynccontextmanager
async def _langgraph_on_sqlite(durability: str, ground: Ground, folder: Path) -> AsyncIterator[Place]:
    # The same packages that this product depends on: no environment is needed.
    asked = {"path": str(folder / "checkpoints.db"), "durability": durability}
    yield Place(Path(sys.executable), asked, lambda: disk_bytes(folder))


@asynccontextmanager
async def _langgraph_on_postgres(durability: str, ground: Ground, folder: Path) -> AsyncIterator[Place]:
    python = await ground.installer.python("langgraph")
    async with servers.postgres() as dsn:
        yield Place(python, {"dsn": dsn, "durability": durability}, lambda: servers.table_bytes(dsn))


@asynccontextmanager
async def _dbos_on_sqlite(ground: Ground, folder: Path) -> AsyncIterator[Place]:
    python = await ground.installer.python("dbos")
    asked = {"dsn": f"sqlite:///{folder / 'dbos.db'}"}
    yield Place(python, asked, lambda: disk_bytes(folder))


@asynccontextmanager
async def _dbos_on_postgres(ground: Ground, folder: Path) -> AsyncIterator[Place]:
    python = await ground.installer.python("dbos")
    async with servers.postgres() as dsn:
        yield Place(python, {"dsn": dsn}, lambda: servers.table_bytes(dsn))


@asynccontextmanager
async def _restate(ground: Ground, folder: Path) -> AsyncIterator[Place]:
    python = await ground.installer.python("restate")
    modules = await ground.installer.npm("restate")
    async with servers.restate(modules, folder) as asked:
        yield Place(python, asked, lambda: disk_bytes(folder))


@asynccontextmanager
async def _temporal(ground: Ground, folder: Path) -> AsyncIterator[Place]:
    python = await ground.installer.python("temporal")
    program = await ground.installer.go("temporal", TEMPORAL_MINUTES)
    async with servers.temporal(program, folder) as asked:
        yield Place(python, asked, lambda: disk_bytes(folder))


_OURS, _GRAPH = "noesium_peer.py", "langgraph_peer.py"
_FILE = "each commit is on the disk: WAL, `synchronous=FULL`"
_BROKER = "one broker takes each commit (`acks=all`); it writes to the page cache, as Kafka ships"
_SYNC, _ASYNC = "each step before the next", "steps without effects within 10 ms"
_POSTGRES = "each commit is on the disk: `fsync=on`"


def _ours(place: str, how: str) -> System:
    kafka = place == "kafka"
    written, opened = (_BROKER, _ours_on_kafka) if kafka else (_FILE, _ours_on_sqlite)
    when = _SYNC if how == "sync" else _ASYNC
    label = f"noesium_stream, {'Kafka' if kafka else 'SQLite'}, `{how.upper()}`"
    return System(f"{place}-{how}", label, f"{when}; {written}", _OURS, partial(opened, how), bulk=True)


def _graph(place: str, how: str) -> System:
    opened = _langgraph_on_postgres if place == "postgres" else _langgraph_on_sqlite
    written = _POSTGRES if place == "postgres" else _FILE
    when = _SYNC if how == "sync" else "a step while the next one runs"
    saver = "PostgresSaver" if place == "postgres" else "SqliteSaver"
    label = f"LangGraph, {saver}, `{how}`"
    name = f"langgraph-{place}-{how}"
    return System(name, label, f"{when}; {written}", _GRAPH, partial(opened, how), in_process=True)


def _server(name: str, label: str, durability: str, opened: Open) -> System:
    return System(name, label, f"each step; {durability}", f"{name}_peer.py", opened)


def _dbos(place: str, written: str, opened: Open) -> System:
    label = "Postgres" if place == "postgres" else "SQLite"
    return System(
        f"dbos-{place}", f"DBOS, {label}", f"each step; {written}", "dbos_peer.py", opened, in_process=True
    )


SYSTEMS: tuple[System, ...] = (
    _ours("sqlite", "sync"),
    _ours("sqlite", "async"),
    _ours("kafka", "sync"),
    _ours("kafka", "async"),
    _server("restate", "Restate, one server", "the server syncs its log, as it ships", _restate),
    _dbos("sqlite", "each commit is on the disk: rollback journal, `synchronous=FULL`", _dbos_on_sqlite),
    _dbos("postgres", _POSTGRES, _dbos_on_postgres),
    _graph("sqlite", "sync"),
    _graph("sqlite", "async"),
    _graph("postgres", "sync"),
    _graph("postgres", "async"),
    _server("temporal", "Temporal, development server", "SQLite as that server opens it", _temporal),
)
"""All systems, in the order of the table."""


def remove(folder: Path) -> None:
    """Remove what a row has written."""
    shutil.rmtree(folder, ignore_errors=True)
