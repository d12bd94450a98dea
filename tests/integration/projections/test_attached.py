"""A projection that is attached: it follows, shares, hands over; on every backend."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from noesium_stream.errors import EventHeldError, KeyElsewhereError, LogTruncatedError, ProjectionError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import EventLog, Outgoing, Position, TopicPartition
from noesium_stream.log.topics import partition_of
from noesium_stream.projection.attached import AttachedProjection
from tests.support.attach import Numbers, Sums, rows_in
from tests.support.backends import PARTITIONS, Backend, Open
from tests.support.events import counted, noted, sold
from tests.support.processes import Program, stop
from tests.support.reading import PATIENCE_S, eventually

KEYS = [f"k{n}" for n in range(20)]


async def add(log: EventLog, first: int, last: int) -> list[Position]:
    return await log.append([counted(n, KEYS[n % len(KEYS)]) for n in range(first, last)])


def expected(count: int) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for n in range(count):
        rows[KEYS[n % len(KEYS)]].append(n)
    return dict(rows)


async def seen(attached: AttachedProjection, places: list[Position]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for place in places:
            await attached.wait_for(place)


def attach(log: EventLog, folder: Path, **options: object) -> AttachedProjection:
    options.setdefault("discover_interval", 0.2)
    return AttachedProjection(log, Numbers(), folder, **options)  # type: ignore[arg-type]


async def test_it_follows_the_log_and_goes_on_where_it_was(log: EventLog, tmp_path: Path) -> None:
    places = await add(log, 0, 200)
    async with attach(log, tmp_path) as attached:
        await seen(attached, places)
        assert dict(attached.scan()) == expected(200)
        await seen(attached, await add(log, 200, 300))
        assert await attached.query("k7") == expected(300)["k7"]
        assert await attached.query("nobody") is None
    assert attached.assignment == frozenset()
    assert rows_in(tmp_path) == expected(300)
    places = await add(log, 300, 400)
    async with attach(log, tmp_path) as again:
        await seen(again, places)
        assert dict(again.scan()) == expected(400)
        assert sum(fold.manifest.events for fold in again.folds.values()) == 400
    await again.wait()


async def test_what_is_folded_is_written_soon(log: EventLog, tmp_path: Path) -> None:
    await add(log, 0, 20)
    async with attach(log, tmp_path):
        await eventually(lambda: rows_in(tmp_path) == expected(20))
        await add(log, 20, 40)
        await eventually(lambda: rows_in(tmp_path) == expected(40))


async def test_a_topic_that_comes_later_is_read_from_its_beginning_and_disturbs_nobody(
    log_factory: Open, tmp_path: Path
) -> None:
    log, other = await log_factory(), await log_factory()
    async with attach(log, tmp_path) as attached:
        assert attached.assignment == frozenset()
        places = await add(other, 0, 100)
        await seen(attached, places)
        demo = dict(attached.folds)
        assert len(demo) == PARTITIONS
        await seen(attached, await other.append([sold(n, f"s{n}") for n in range(100)]))
        assert len(attached.folds) == 2 * PARTITIONS
        assert {tp: attached.folds[tp] for tp in demo} == demo, "those that were there were not opened anew"
        rows = dict(attached.scan("s"))
        assert rows == {f"s{n}": [n] for n in range(100)}


async def test_two_share_the_partitions_and_say_who_has_what(log_factory: Open, tmp_path: Path) -> None:
    first_log, second_log = await log_factory(), await log_factory()
    places = await add(first_log, 0, 200)
    async with attach(first_log, tmp_path / "one") as one:
        await seen(one, places)
        async with attach(second_log, tmp_path / "two") as two:
            await eventually(lambda: len(one.assignment) == len(two.assignment) == PARTITIONS // 2)
            places = await add(first_log, 200, 400)
            here = f"{socket.gethostname()}/{os.getpid()}"
            for place in places:
                tp = TopicPartition(place.topic, place.partition)
                owner, stranger = (one, two) if tp in one.assignment else (two, one)
                await asyncio.wait_for(owner.wait_for(place), PATIENCE_S)
                with pytest.raises(KeyElsewhereError, match=here) as raised:
                    await asyncio.wait_for(stranger.wait_for(place), PATIENCE_S)
                assert raised.value.owner == here
            for key, row in expected(400).items():
                partition = partition_of(key, PARTITIONS)
                tp = TopicPartition(places[0].topic, partition)
                owner, stranger = (one, two) if tp in one.assignment else (two, one)
                assert await owner.query(key) == row
                with pytest.raises(KeyElsewhereError, match=key):
                    await stranger.query(key)
            assert {**dict(one.scan()), **dict(two.scan())} == expected(400)
        places = await add(first_log, 400, 500)
        await seen(one, places)
        assert dict(one.scan()) == expected(500)


async def test_a_barrier_waits_for_a_partition_that_is_changing_hands(
    log_factory: Open, tmp_path: Path
) -> None:
    first_log, second_log = await log_factory(), await log_factory()
    places = await add(first_log, 0, 200)
    one = attach(first_log, tmp_path)
    await one.start()
    await seen(one, places)
    two = attach(second_log, tmp_path)
    await two.start()
    await eventually(lambda: len(one.assignment) == len(two.assignment) == PARTITIONS // 2)
    closing = asyncio.create_task(one.close())

    async def both() -> None:
        while True:
            try:
                return await seen(two, places)
            except KeyElsewhereError:  # until the other one has let go
                await asyncio.sleep(0.01)

    await asyncio.wait_for(both(), PATIENCE_S)
    assert dict(two.scan()) == expected(200)
    assert sum(fold.manifest.events for fold in two.folds.values()) == 200, "the same files went on"
    await closing
    await two.close()


async def test_a_partition_that_comes_back_goes_on_with_its_own_file(
    log_factory: Open, tmp_path: Path
) -> None:
    first_log, second_log = await log_factory(), await log_factory()
    await add(first_log, 0, 200)
    async with attach(first_log, tmp_path / "one") as one:
        await seen(one, await add(first_log, 200, 300))
        async with attach(second_log, tmp_path / "two") as two:
            await eventually(lambda: len(one.assignment) == len(two.assignment) == PARTITIONS // 2)
            gone = two.assignment
            at = {tp: (tmp_path / "one").rglob(f"{tp.topic}-{tp.partition}.state") for tp in gone}
            assert all(len(list(found)) == 1 for found in at.values()), "the files stay"
            await add(first_log, 300, 400)
        await seen(one, await add(first_log, 400, 500))
        assert dict(one.scan()) == expected(500)
        assert all(one.folds[tp].manifest.commits > 1 for tp in gone)
        assert sum(fold.manifest.events for fold in one.folds.values()) == 500


@pytest.mark.needs("several_processes")
@pytest.mark.parametrize("folders", [("a", "b"), ("same", "same")])
async def test_one_of_two_processes_is_killed_and_the_other_takes_over(
    backend: Backend, tmp_path: Path, folders: tuple[str, str]
) -> None:
    log = await backend.open()
    await add(log, 0, 200)
    first, second = (tmp_path / name for name in folders)
    dying = await Program.start("tests.support.attach", backend.url, first)
    await dying.line("has 0 1 2 3")
    async with attach(log, second) as attached:
        await eventually(lambda: len(attached.assignment) == 2)
        await eventually(lambda: any(line.startswith("has") and len(line) == 7 for line in dying.lines))
        await add(log, 200, 400)
        await dying.kill()
        await eventually(lambda: len(attached.assignment) == PARTITIONS)
        await seen(attached, await add(log, 400, 500))
        assert dict(attached.scan()) == expected(500)
        assert sum(fold.manifest.events for fold in attached.folds.values()) == 500


async def test_a_damaged_file_is_discarded_and_folded_again_while_the_others_go_on(
    log: EventLog, tmp_path: Path
) -> None:
    said: list[str] = []
    await add(log, 0, 200)
    async with attach(log, tmp_path, report=said.append) as attached:
        await seen(attached, await add(log, 200, 300))
        attached.flush()
        tp = sorted(attached.folds)[1]
        others = {other: fold for other, fold in attached.folds.items() if other != tp}
        fold = attached.folds[tp]
        fold.file._db.execute("UPDATE row SET value = x'5b395d' WHERE value <> x''")
        fold._states.clear()
        places = await add(log, 300, 400)
        await seen(attached, places)
        await eventually(lambda: len(attached.folds) == PARTITIONS and attached.folds[tp] is not fold)
        await seen(attached, places)
        assert dict(attached.scan()) == expected(400)
        assert len(said) == 1
        assert "is damaged" in said[0]
        assert "folded again" in said[0]
        assert {other: attached.folds[other] for other in others} == others
    assert rows_in(tmp_path) == expected(400)


async def test_a_log_truncated_below_the_cursor_stops_it(log: EventLog, tmp_path: Path) -> None:
    async with attach(log, tmp_path) as attached:
        await seen(attached, await add(log, 0, 200))
    topic = log.topology.events("demo")
    await add(log, 200, 400)
    await log.truncate(topic, {1: (await log.end(topic))[1] - 1})
    again = attach(log, tmp_path)
    await again.start()
    with pytest.raises(LogTruncatedError, match=f"{topic}/1"):
        await asyncio.wait_for(again.wait(), PATIENCE_S)
    assert again.assignment == frozenset()
    assert await log.members(again.group) == [], "it has left its group"
    with pytest.raises(ProjectionError, match="stopped"):
        await again.wait_for(Position(topic, 0, 0))
    await again.close()


class Picky(Numbers):
    name = "picky"
    on_error = "stop"

    def apply(self, state: list[int], event: EventEnvelope) -> list[int]:
        if event.payload["n"] == 250:
            raise ValueError("not this one")
        return super().apply(state, event)


async def test_an_event_that_stops_it_is_told_and_what_came_before_is_kept(
    log: EventLog, tmp_path: Path
) -> None:
    attached = AttachedProjection(log, Picky(), tmp_path, discover_interval=0.2)
    await attached.start()
    await seen(attached, await add(log, 0, 200))
    places = await add(log, 200, 300)
    at = places[50]
    with pytest.raises(EventHeldError, match=f"{at.topic}/{at.partition}@{at.offset} .*not this one"):
        await asyncio.wait_for(attached.wait(), PATIENCE_S)
    assert attached.assignment == frozenset()
    rows, whole = rows_in(tmp_path), expected(300)
    assert all(row == whole[key][: len(row)] for key, row in rows.items())
    assert rows[KEYS[250 % 20]] == [n for n in whole[KEYS[250 % 20]] if n < 250]
    await attached.close()
    with pytest.raises(EventHeldError):
        await attached.wait()


class Rare(Numbers):
    name = "rare"
    event_types = ("demo.noted.twice",)


async def test_a_barrier_passes_over_events_that_are_not_wanted(log: EventLog, tmp_path: Path) -> None:
    places = [*await log.append([noted(1, "k0")]), *await add(log, 0, 100)]
    async with AttachedProjection(log, Rare(), tmp_path, discover_interval=600) as attached:
        await seen(attached, places)
        await seen(attached, await add(log, 100, 200))
        assert dict(attached.scan()) == {"k0": [1]}


async def test_events_that_are_not_wanted_are_not_read_again(log: EventLog, tmp_path: Path) -> None:
    async with AttachedProjection(log, Rare(), tmp_path, discover_interval=0.1) as attached:
        last = {
            TopicPartition(place.topic, place.partition): place.offset for place in await add(log, 0, 100)
        }
        await eventually(
            lambda: (
                attached.folds.keys() == last.keys()
                and all(attached.folds[tp].file.manifest.cursor > offset for tp, offset in last.items())
            )
        )


async def test_parts_of_a_row_in_several_partitions_are_merged(log: EventLog, tmp_path: Path) -> None:
    async with AttachedProjection(log, Sums(), tmp_path, discover_interval=0.2) as attached:
        await seen(attached, await add(log, 0, 100))
        assert await attached.query("3") == sum(range(3, 100, 10))
        assert dict(attached.scan()) == {str(d): sum(range(d, 100, 10)) for d in range(10)}


async def test_a_barrier_of_what_it_does_not_fold_is_an_error(log: EventLog, tmp_path: Path) -> None:
    places = await log.append([counted(1, "k", metadata={"to": "tester"})])
    async with attach(log, tmp_path) as attached:
        with pytest.raises(ProjectionError, match="does not fold"):
            await attached.wait_for(places[0])
        [place] = await add(log, 0, 1)
        with pytest.raises(ProjectionError, match=f"{place.topic}/99"):
            await attached.wait_for(place._replace(partition=99))
    with pytest.raises(ProjectionError, match="not attached"):
        await attached.wait_for(place)


async def test_closing_right_after_events_came_loses_and_repeats_nothing(
    log: EventLog, tmp_path: Path
) -> None:
    for turn in range(10):
        attached = attach(log, tmp_path)
        await attached.start()
        places = await add(log, turn * 30, turn * 30 + 30)
        if turn % 2:
            await seen(attached, places[: 3 * turn])
        await attached.close()
        await attached.wait()
    async with attach(log, tmp_path) as attached:
        await seen(attached, places)
        assert dict(attached.scan()) == expected(300)
        assert sum(fold.manifest.events for fold in attached.folds.values()) == 300


async def test_a_hundred_partitions_of_several_topics(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open()
    names = [f"events.many{n}{secrets.token_hex(2)}" for n in range(5)]
    topics = [f"{log.topology.namespace}.{name}" for name in names]
    for topic in topics:
        await log.ensure_topics([replace(log.topology.spec(topic), partitions=20)])
    places = []
    for topic in topics:
        places += await log.append([counted(n, f"{topic}-{n}") for n in range(100)], topic=topic)
    async with attach(log, tmp_path) as attached:
        await seen(attached, places)
        assert dict(attached.scan()) == {f"{topic}-{n}": [n] for topic in topics for n in range(100)}
        assert len(attached.assignment) == 100


async def test_it_says_when_it_has_caught_up_also_behind_markers_and_aborted_records(
    log: EventLog, tmp_path: Path
) -> None:
    topic = log.topology.events("demo")
    await add(log, 0, 100)
    writer = await log.writer("w")
    for turn in range(3):
        await writer.commit([Outgoing(counted(turn, "w"), topic, 0, "w")])
        transaction = await writer.begin()
        await transaction.write([Outgoing(counted(99, "lost"), topic, p, "lost") for p in range(PARTITIONS)])
        await transaction.abort()
        async with attach(log, tmp_path, discover_interval=600) as attached:
            await asyncio.wait_for(attached.wait_until_caught_up(), PATIENCE_S)
            assert dict(attached.scan()) == {**expected(100), "w": list(range(turn + 1))}
            await asyncio.wait_for(attached.wait_until_caught_up(), PATIENCE_S)


async def test_what_others_have_is_left_to_them_when_it_catches_up(log_factory: Open, tmp_path: Path) -> None:
    first_log, second_log = await log_factory(), await log_factory()
    await add(first_log, 0, 200)
    async with attach(first_log, tmp_path / "one") as one, attach(second_log, tmp_path / "two") as two:
        await eventually(lambda: len(one.assignment) == len(two.assignment) == PARTITIONS // 2)
        for attached in (one, two):
            await asyncio.wait_for(attached.wait_until_caught_up(), PATIENCE_S)
        assert {**dict(one.scan()), **dict(two.scan())} == expected(200)


@pytest.mark.needs("several_processes")
async def test_a_process_that_was_frozen_past_its_lease_folds_nothing_twice(
    backend: Backend, tmp_path: Path
) -> None:
    log = await backend.open()
    await add(log, 0, 200)
    frozen = await Program.start("tests.support.attach", backend.url, tmp_path / "frozen")
    await frozen.line("has 0 1 2 3")
    async with attach(log, tmp_path / "here") as attached:
        await eventually(lambda: len(attached.assignment) == 2)
        await stop(frozen.pid, backend.url)
        await add(log, 200, 300)
        await eventually(lambda: len(attached.assignment) == PARTITIONS)
        await seen(attached, await add(log, 300, 400))
        assert dict(attached.scan()) == expected(400)
        os.kill(frozen.pid, signal.SIGCONT)
        await eventually(lambda: len(attached.assignment) == 2)
        await add(log, 400, 500)
        await eventually(lambda: rows_in(tmp_path / "here", tmp_path / "frozen") == expected(500))
    await frozen.kill()
