"""The file of memory: one for each log, and for a log in memory one that ends with it."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from noesium_stream.clock import Clock, SystemClock, VirtualClock
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.memory import MemoryManager, memory_of

_PROCESS = """
import asyncio, os, sys
from pathlib import Path
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.memory import memory_of

async def main():
    log = await open_log("memory://")
    memory = memory_of(log, Path(sys.argv[1]), AgentRef("p", "client", "local", "i"), "shared")
    await memory.write("key", "of a process")
    print(await memory.recall("key"), flush=True)
    if sys.argv[2] == "die":
        os._exit(9)

asyncio.run(main())
"""


def memory(log: EventLog, home: Path, clock: Clock | None = None) -> MemoryManager:
    return memory_of(log, home, AgentRef("p", "client", "local", "i"), "shared", clock=clock)


def process(home: Path, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, str(home), end], check=False, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("of a process\n", 9 if end == "die" else 0), done.stderr


def files(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "memory").iterdir())


async def test_two_logs_in_memory_with_one_home_do_not_share_what_is_remembered(tmp_path: Path) -> None:
    for make in (SystemClock, VirtualClock):
        first, second = await open_log("memory://", clock=make()), await open_log("memory://", clock=make())
        mine, theirs = memory(first, tmp_path, make()), memory(second, tmp_path, make())
        await mine.write("city", "Paris")
        assert await mine.recall("city") == "Paris"
        assert await theirs.recall("city") is None
        await theirs.write("city", "Rome")
        assert await theirs.recall("city") == "Rome"
        assert await mine.recall("city") == "Paris"
        assert [found.item.value for found in await theirs.search("paris rome")] == ["Rome"]
        mine.close()
        theirs.close()
        await first.close()
        await second.close()


async def test_those_who_share_a_log_in_memory_share_what_is_remembered(tmp_path: Path) -> None:
    log, other = await open_log("memory://both"), await open_log("memory://both")
    await memory(log, tmp_path).write("city", "Paris")
    assert memory(log, tmp_path).durable.store.path == memory(log, tmp_path).durable.store.path
    assert await memory(log, tmp_path).recall("city") == "Paris"
    assert await memory(other, tmp_path).recall("city") == "Paris"
    await log.close()
    await other.close()


async def test_the_file_of_a_log_in_memory_ends_with_the_log(tmp_path: Path) -> None:
    log = await open_log("memory://")
    remembered = memory(log, tmp_path)
    await remembered.write("city", "Paris")
    await remembered.search("paris")
    assert len([name for name in files(tmp_path) if name.endswith(".db")]) == 2
    remembered.close()
    await log.close()
    del log, remembered
    gc.collect()
    assert files(tmp_path) == []


async def test_the_file_of_a_log_in_memory_ends_with_its_process(tmp_path: Path) -> None:
    process(tmp_path, "end")
    assert files(tmp_path) == []


async def test_what_a_killed_process_has_left_goes_with_the_next_log_in_memory(
    tmp_path: Path,
) -> None:
    log = await open_log("memory://")
    remembered = memory(log, tmp_path)
    await remembered.write("city", "Paris")
    assert await remembered.recall("city") == "Paris"
    process(tmp_path, "die")
    killed = [name for name in files(tmp_path) if not name.startswith(remembered.durable.store.path.stem)]
    assert killed
    process(tmp_path, "end")
    assert not set(killed) & set(files(tmp_path))
    assert await remembered.recall("city") == "Paris"
    assert remembered.durable.store.path.is_file()
    await log.close()


async def test_a_log_that_was_deleted_leaves_nothing_to_the_one_made_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    for city in ("Paris", None):
        log = await open_log(f"sqlite:///{path}")
        remembered = memory(log, tmp_path)
        if city is not None:
            await remembered.write("city", city)
        assert await remembered.recall("city") == city
        assert await remembered.search("paris") == [] or city is not None
        remembered.close()
        await log.close()
        for file in tmp_path.glob("log.db*"):
            file.unlink()


async def test_another_log_keeps_its_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    log = await open_log(url)
    await memory(log, tmp_path).write("city", "Paris")
    assert await memory(log, tmp_path).recall("city") == "Paris"
    path = memory(log, tmp_path).durable.store.path
    await log.close()
    del log
    gc.collect()
    process(tmp_path, "end")
    again = await open_log(url)
    assert memory(again, tmp_path).durable.store.path == path
    assert path.is_file()
    await again.close()
