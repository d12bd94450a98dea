"""The memory of an agent, or of a program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from noesium_stream.clock import Clock, SystemClock
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log.port import EventLog
from noesium_stream.memory.durable import DurableMemory
from noesium_stream.memory.manager import MemoryManager
from noesium_stream.memory.own_file import own_file
from noesium_stream.memory.scope import scope_of
from noesium_stream.memory.semantic import SemanticMemory
from noesium_stream.memory.store import MemoryStore, store_path
from noesium_stream.projection.builtin.semantic import Embedder


def memory_of(
    log: EventLog,
    home: Path,
    producer: AgentRef,
    scope: str,
    *,
    clock: Clock | None = None,
    embedder: Embedder | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> MemoryManager:
    """The memory of a log, for one who writes.

    Args:
        log: an open log.
        home: where this machine keeps states: the file is in `home/memory`. A log in memory has one of its
            own there, which ends with it.
        producer: who writes.
        scope: whose memory: `user:ada`, `shared` and the like.
        clock: time and ids.
        embedder: for search by meaning.
        report: called with one sentence when the file had to be discarded.

    Raises:
        MemoryScopeError: it is no scope.
    """
    store = _store(log, home, report)
    durable = DurableMemory(store, log, producer, clock or SystemClock(), scope_of(scope))
    return MemoryManager(durable, SemanticMemory(store, embedder))


def _store(log: EventLog, home: Path, report: Callable[[str], None]) -> MemoryStore:
    path = store_path(home, log.url)
    if not log.url.startswith("memory:"):
        return MemoryStore(path, report)
    file = own_file(path.parent, log)
    return MemoryStore(file.path, report, file.hold)
