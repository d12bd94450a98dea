"""The index of memory: cut off in the middle, made anew, of another store; what it searches."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import AgentMemoryError, ImpureProjectionError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.memory import MemoryManager, SemanticMemory, memory_of, semantic
from noesium_stream.memory.fact import Fact
from noesium_stream.memory.semantic import text_of
from noesium_stream.projection.fold_guard import FOLDING


def client(log: EventLog, folder: Path, clock: VirtualClock | None = None) -> MemoryManager:
    return memory_of(
        log, folder, AgentRef("p", "client", "local", "i"), "user:ada", clock=clock or VirtualClock()
    )


async def texts(memory: MemoryManager, query: str, scopes: list[str] | None = None) -> list[object]:
    return [found.item.value for found in await memory.search(query, 50, scopes=scopes)]


async def test_an_index_that_was_cut_off_in_the_middle_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log("memory://")
    clock = VirtualClock()
    memory = client(log, tmp_path, clock)
    for number in range(25):
        await memory.write(f"k{number}", f"rain {number}")
    await memory.durable.store.catch_up(log)
    clock.advance(1)  # writes of one moment have the order of their ids, and a virtual clock's do not grow
    monkeypatch.setattr(semantic, "_BATCH", 10)
    whole, cut_off = semantic.text_of, list[int]()

    def cut(fact: Fact) -> str:
        if fact.value == "rain 12" and not cut_off:
            cut_off.append(1)
            raise KeyboardInterrupt
        return whole(fact)

    monkeypatch.setattr(semantic, "text_of", cut)
    with pytest.raises(KeyboardInterrupt):
        memory.semantic._refresh()
    assert len(await texts(memory, "rain")) == 25
    memory.durable.clock.advance(1)
    await memory.write("k3", "snow")
    await memory.delete("k4")
    assert len(await texts(memory, "rain")) == 23
    assert await texts(memory, "snow") == ["snow"]
    await log.close()


async def test_it_follows_a_store_that_was_folded_anew_and_keeps_scopes_apart(tmp_path: Path) -> None:
    log = await open_log("memory://")
    memory = client(log, tmp_path)
    await memory.write("mine", {"note": "the rain in May", "n": 7})
    await memory.at("user:bo").write("his", "rain as well")
    assert await texts(memory, "May rain") == [{"note": "the rain in May", "n": 7}]
    assert len(await texts(memory, "rain", ["user:ada", "user:bo"])) == 2
    assert await texts(memory, "rain", ["user:eve"]) == []
    assert await texts(memory, '"rain" OR body : * )(') == [{"note": "the rain in May", "n": 7}]
    assert await texts(memory, "?!") == []
    await memory.durable.rebuild()
    assert len(await texts(memory, "rain", ["user:ada", "user:bo"])) == 2
    memory.semantic.path.write_bytes(b"damaged" * 999)
    memory.semantic.close()
    assert len(await texts(memory, "rain")) == 1
    assert await memory.semantic.rebuild_index() == 2
    await log.close()


async def test_it_is_bounded_and_no_fold_reads_it(tmp_path: Path) -> None:
    log = await open_log("memory://")
    memory = client(log, tmp_path)
    for top_k in (0, 201):
        with pytest.raises(AgentMemoryError, match="cannot have"):
            await memory.search("rain", top_k)
    with FOLDING, pytest.raises(ImpureProjectionError):
        await SemanticMemory(memory.durable.store).refresh()
    long = Fact("f", "user:ada", "k", ["x" * 50_000, "y"], 1, "p", "e")
    assert len(text_of(long)) < 20_100
    await log.close()
