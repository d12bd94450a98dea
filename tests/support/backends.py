"""The backends that the contract suite runs on, and what each can do.

A test that takes `log`, `log_factory` or `backend` runs once per backend. The mark
`needs("several_processes")` leaves out backends whose class says that they have no such thing: those cases
do not exist, nothing is skipped. A backend of one's own joins by its entry in `BACKENDS`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.prepare import Prepared
from noesium_stream.log.topics import Topology
from tests.support.events import catalogue
from tests.support.kafka import KafkaServer
from tests.support.stores import inject

PARTITIONS = 4

Open = Callable[..., Awaitable[EventLog]]


class Backend:
    """A store of one test's own; `open` gives another `EventLog` on it each time."""

    holds_back_readers: ClassVar[bool]
    """Whether an open transaction holds back committed readers of its partitions."""

    several_processes: ClassVar[bool]
    """Whether other processes can open the same store at `url`."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request
        self.namespace = f"t{secrets.token_hex(6)}"
        self.logs: list[EventLog] = []

    @property
    def url(self) -> str:
        """Where every log of this test is opened; with the namespace, so that a subprocess needs no more."""
        raise NotImplementedError

    async def open(self, **options: Any) -> EventLog:
        """Another log on the store; closed at the end of the test."""
        options.setdefault("topology", Topology(self.namespace, PARTITIONS))
        options.setdefault("catalogue", catalogue())
        log = await open_log(self.url, **options)
        self.logs.append(log)
        return log

    async def inject(
        self, topic: str, partition: int, key: str, headers: Sequence[tuple[str, bytes]], value: bytes
    ) -> None:
        """Put a record on the store as a foreign program would: these bytes, whatever they are."""
        log = self.logs[0]
        await inject(log, Prepared(topic, partition, key, "", tuple(headers), value), partition=partition)

    async def close(self) -> None:
        """Close what was opened."""
        for log in self.logs:
            await log.close()


class Memory(Backend):
    holds_back_readers = True
    several_processes = False

    @property
    def url(self) -> str:
        return f"memory://{self.namespace}"


class SeededMemory(Memory):
    """Operations interleave by a seed: the test's own name, so that a failure repeats."""

    @property
    def url(self) -> str:
        return f"memory://{self.namespace}?seed={sum(self.request.node.name.encode())}"


class Sqlite(Backend):
    holds_back_readers = False
    several_processes = True

    @property
    def url(self) -> str:
        folder: Path = self.request.getfixturevalue("tmp_path")
        return f"sqlite:///{folder}/new/log.db?namespace={self.namespace}&partitions={PARTITIONS}"


class Kafka(Backend):
    """A namespace of its own on the session's broker."""

    holds_back_readers = True
    several_processes = True

    @property
    def url(self) -> str:
        server: KafkaServer = self.request.getfixturevalue("kafka")
        return f"{server.url(self.namespace)}&partitions={PARTITIONS}"

    async def inject(
        self, topic: str, partition: int, key: str, headers: Sequence[tuple[str, bytes]], value: bytes
    ) -> None:
        server: KafkaServer = self.request.getfixturevalue("kafka")
        await asyncio.to_thread(server.inject, topic, partition, key, headers, value)


BACKENDS: dict[str, type[Backend]] = {
    "memory": Memory,
    "seeded": SeededMemory,
    "sqlite": Sqlite,
    "kafka": Kafka,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case per backend that has what the test needs."""
    if "backend" in metafunc.fixturenames:
        needs = [mark.args[0] for mark in metafunc.definition.iter_markers("needs")]
        names = [name for name, kind in BACKENDS.items() if all(getattr(kind, need) for need in needs)]
        metafunc.parametrize("backend", names, indirect=True)


@pytest.fixture
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    backend = BACKENDS[request.param](request)
    yield backend
    await backend.close()


@pytest.fixture
def log_factory(backend: Backend) -> Open:
    """Opens another log on the same store each time it is called."""
    return backend.open


@pytest.fixture
async def log(backend: Backend) -> EventLog:
    """A log on a store of its own."""
    return await backend.open()
