"""The signal: who waits for a partition is woken by changes of it, and by what may concern anybody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection

import pytest

from noesium_stream.log import open_log
from noesium_stream.log.embedded.store import Topic
from noesium_stream.log.embedded.wakeup import Place, Signal
from tests.support.events import catalogue, counted
from tests.support.reading import PATIENCE_S, Tail
from tests.support.stores import store_of

A, B, C = ("a", 0), ("a", 1), ("b", 0)


async def waiting(signal: Signal, *places: Collection[Place] | None) -> list[asyncio.Task[None]]:
    """Tasks that wait for these from now on."""
    tasks = [asyncio.create_task(signal.wait(signal.count, None, place)) for place in places]
    await turns()
    return tasks


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def done(tasks: list[asyncio.Task[None]]) -> list[bool]:
    return [task.done() for task in tasks]


async def test_a_change_of_a_partition_wakes_who_waits_for_it_or_for_anything() -> None:
    signal = Signal()
    tasks = await waiting(signal, (A,), (B,), (A, C), None)
    signal.notify((A,))
    await turns()
    assert done(tasks) == [True, False, True, True]
    signal.notify((B, C))
    await turns()
    assert done(tasks) == [True, True, True, True]


async def test_a_change_of_nobody_knows_what_wakes_everybody() -> None:
    signal = Signal()
    tasks = await waiting(signal, (A,), (B,), (), None)
    signal.notify()
    await turns()
    assert done(tasks) == [True, True, True, True]


@pytest.mark.parametrize("places", [(A,), (A, B), None])
async def test_a_change_since_the_count_that_was_seen_is_not_waited_for(
    places: Collection[Place] | None,
) -> None:
    signal = Signal()
    seen = signal.count
    signal.notify((A,))
    signal.notify((C,))
    await asyncio.wait_for(signal.wait(seen, None, places), PATIENCE_S)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(signal.wait(seen, None, (B,)), 0.01)
    seen = signal.count
    signal.notify()
    await asyncio.wait_for(signal.wait(seen, None, (B,)), PATIENCE_S)


async def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    signal = Signal()
    await signal.wait(signal.count, 0.001, (A, B))
    [task] = await waiting(signal, (A,))
    task.cancel()
    await asyncio.wait((task,))
    [woken] = await waiting(signal, (B,))
    signal.notify((B,))
    await woken
    assert signal._waiters == signal._waiting == {}


async def test_a_change_in_another_thread_wakes_who_waits_here() -> None:
    signal = Signal()
    [task] = await waiting(signal, (A,))
    thread = threading.Thread(target=signal.notify, args=((A,),))
    thread.start()
    await asyncio.wait_for(task, PATIENCE_S)
    thread.join()


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/log.db"])
async def test_a_reader_is_not_woken_by_what_goes_into_other_partitions(
    url: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log(url.format(tmp_path), catalogue=catalogue())
    topic, store = log.topology.events("demo"), store_of(log)
    keys = {(await log.append([counted(n, f"k{n}")]))[0].partition: f"k{n}" for n in range(100)}
    fetch, fetched = store.fetch, []

    def spied(info: Topic, partition: int, *rest: object) -> object:
        fetched.append(partition)
        return fetch(info, partition, *rest)

    async with Tail(log, topic, await log.end(topic), partitions=(0,)) as tail:
        await log.append([counted(0, keys[0])])
        await tail.has(1)
        await turns()
        monkeypatch.setattr(store, "fetch", spied)
        for n in range(50):
            await log.append([counted(n, keys[1])])
            await turns()
        assert fetched == []
        await log.append([counted(1, keys[0])])
        await tail.has(2)
    assert set(fetched) == {0}
    await log.close()
