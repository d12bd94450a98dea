"""The engine of one process: caught up on demand, asked, rebuilt; on memory://."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import (
    EventHeldError,
    LogTruncatedError,
    ProjectionError,
    SequenceGapError,
    StateBusyError,
    StateFileError,
)
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, Position, TopicPartition, TopicShape
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.stored.folder import state_path
from tests.support.attach import Numbers, Sums, rows_in
from tests.support.events import catalogue, counted, noted, outgoing, sold
from tests.support.reading import stored


class Total(BaseProjection[int]):
    """Without a key: one state per partition, merged."""

    name = "total"
    topics = ("events.*",)

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + int(event.payload["n"])

    def merge(self, a: int, b: int) -> int:
        return a + b


class Unmerged(Total):
    name = "unmerged"
    merge = BaseProjection.merge


class UnmergedSums(Sums):
    name = "unmerged_sums"
    merge = BaseProjection.merge


class LocalTotal(Unmerged):
    name = "local_total"
    local_keys = True


class LocalSums(UnmergedSums):
    name = "local_sums"
    local_keys = True


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=4", catalogue=catalogue())
    yield log
    await log.close()


async def add(log: EventLog, first: int, last: int) -> list[Position]:
    return await log.append([counted(n, f"k{n % 20}") for n in range(first, last)])


def expected(count: int) -> dict[str, list[int]]:
    return {f"k{k}": list(range(k, count, 20)) for k in range(min(20, count))}


async def test_a_table_is_caught_up_whenever_it_is_asked_for(log: EventLog) -> None:
    with ProjectionEngine(log) as engine:
        engine.register("numbers", Numbers())
        assert await engine.get_state("numbers") == {}
        await add(log, 0, 100)
        assert await engine.get_state("numbers") == expected(100)
        await add(log, 100, 200)
        assert await engine.get_state("numbers") == expected(200)
        assert await engine.get_state("numbers") == expected(200)


async def test_a_state_without_keys_is_merged_and_begins_as_it_says(log: EventLog) -> None:
    with ProjectionEngine(log) as engine:
        engine.register("total", Total())
        assert await engine.get_state("total") == 0
        await add(log, 0, 100)
        assert await engine.get_state("total") == sum(range(100))
        assert engine.query("total", "") == sum(range(100))


async def test_parts_in_several_partitions_without_a_merge_are_an_error_that_says_what_to_do(
    log: EventLog,
) -> None:
    with ProjectionEngine(log) as engine:
        engine.register("unmerged", LocalTotal())
        engine.register("sums", LocalSums())
        await log.append([counted(5, "k")])
        assert await engine.get_state("unmerged") == 5, "one partition is no several"
        await log.append([counted(n, f"u{n}") for n in range(200)])
        with pytest.raises(ProjectionError, match="The state of the projection local_total has parts"):
            await engine.get_state("unmerged")
        with pytest.raises(ProjectionError, match="merge"):
            await engine.get_state("sums")
        with pytest.raises(ProjectionError, match="key '3'"):
            engine.query("sums", "3")


async def test_a_state_without_keys_and_without_merge_is_refused_before_it_is_folded(log: EventLog) -> None:
    with ProjectionEngine(log) as engine:
        engine.register("unmerged", Unmerged())
        await engine.catch_up("unmerged")  # there is no topic yet
        await log.append([counted(5, "k")])
        with pytest.raises(ProjectionError, match="a state per partition, and folds 4 of them") as told:
            await engine.catch_up("unmerged")
        assert "local_keys = True" in str(told.value.hint)
        assert engine.file("unmerged", TopicPartition(log.topology.events("demo"), 0)) is None


async def test_a_key_that_may_have_parts_elsewhere_is_refused_at_its_first_event(
    log: EventLog, tmp_path: Path
) -> None:
    class Spread(UnmergedSums):
        name = "spread"
        on_error = "stop"
        key = BaseProjection.key

        def keys(self, event: EventEnvelope) -> list[str]:
            return [str(event.partition_key), "all"]

    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("sums", UnmergedSums())
        engine.register("spread", Spread())
        await log.append([counted(5, "5"), counted(6, "k")])
        with pytest.raises(ProjectionError, match=r"The key '6' .* may have parts .* in that of 'k'") as told:
            await engine.catch_up("sums")
        assert told.value.hint == (
            "Declare `merge`, or let `key` return the event's partition key. Or say local_keys = True if all "
            "events of a key lie in one partition all the same."
        )
        with pytest.raises(ProjectionError, match=r"The key 'all' .* may have parts"):
            await engine.catch_up("spread")
        with pytest.raises(ProjectionError, match="may have parts"):
            await engine.catch_up("sums")  # nothing is held back: it does not go on


async def test_in_a_topic_of_one_partition_every_key_has_one_place() -> None:
    log = await open_log("memory://?partitions=1", catalogue=catalogue())
    try:
        with ProjectionEngine(log) as engine:
            engine.register("unmerged", Unmerged())
            engine.register("sums", UnmergedSums())
            await log.append([counted(n, f"u{n}") for n in range(20)])
            assert await engine.get_state("unmerged") == sum(range(20))
            assert len(await engine.get_state("sums")) > 0
    finally:
        await log.close()


async def test_rows_are_asked_by_key_and_by_prefix_in_the_order_of_their_bytes(log: EventLog) -> None:
    with ProjectionEngine(log) as engine:
        engine.register("numbers", Numbers())
        engine.register("sums", Sums())
        names = ["b", "ba", "a", "ä", "bé", "z", "\N{GRINNING FACE}", "￿"]
        await log.append([counted(n, key) for n, key in enumerate(names)])
        assert engine.query("numbers", "a") is None, "not before it is caught up"
        await engine.catch_up("numbers")
        await engine.catch_up("sums")
        assert engine.query("numbers", "ba") == [1]
        assert engine.query("numbers", "nobody") is None
        assert [key for key, _ in engine.scan("numbers")] == sorted(names, key=str.encode)
        assert dict(engine.scan("numbers", "b")) == {"b": [0], "ba": [1], "bé": [4]}
        assert list(engine.scan("numbers", "c")) == []
        assert dict(engine.scan("sums")) == {str(n): n for n in range(8)}


async def test_a_barrier_has_seen_the_position_or_says_that_it_never_will(log: EventLog) -> None:
    with ProjectionEngine(log) as engine:
        engine.register("numbers", Numbers())
        [place] = await log.append([counted(7, "k")])
        await engine.wait_for("numbers", place)
        assert engine.query("numbers", "k") == [7]
        with pytest.raises(ProjectionError, match=f"{place.topic}/{place.partition}@99"):
            await engine.wait_for("numbers", place._replace(offset=99))
        with pytest.raises(ProjectionError, match="nowhere"):
            await engine.wait_for("numbers", place._replace(topic="nowhere"))


async def test_an_event_that_is_applied_is_folded_once_by_all(log: EventLog) -> None:
    with ProjectionEngine(log) as engine:
        engine.register("numbers", Numbers())
        engine.register("total", Total())
        for n in range(5):
            event = counted(n, "k")
            await log.append([event])
            await engine.apply_event(event)
            await engine.apply_event(event)
        assert engine.query("numbers", "k") == list(range(5))
        assert engine.query("total", "") == 10


async def test_a_rebuild_folds_everything_again(log: EventLog, tmp_path: Path) -> None:
    class Doubled(Numbers):
        factor = 1

        def apply(self, state: list[int], event: EventEnvelope) -> list[int]:
            return [*state, self.factor * event.payload["n"]]

    projection = Doubled()
    await add(log, 0, 100)
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("numbers", projection)
        assert await engine.get_state("numbers") == expected(100)
    projection.factor = 2
    doubled = {key: [2 * n for n in row] for key, row in expected(100).items()}
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("numbers", projection)
        assert await engine.rebuild("numbers") == doubled, "also where nothing was opened yet"
        projection.factor = 1
        assert await engine.rebuild("numbers") == expected(100)
    assert rows_in(tmp_path) == expected(100)


async def test_several_ask_at_once_and_nothing_is_folded_twice(log: EventLog) -> None:
    with ProjectionEngine(log) as engine:
        engine.register("numbers", Numbers())
        await add(log, 0, 3000)
        asked = [engine.get_state("numbers"), engine.rebuild("numbers"), engine.get_state("numbers")]
        for state in await asyncio.gather(*asked):
            assert state == expected(3000)


async def test_a_folder_is_one_engines_at_a_time_and_goes_on_where_it_was(
    log: EventLog, tmp_path: Path
) -> None:
    await add(log, 0, 100)
    with ProjectionEngine(log, tmp_path) as engine, ProjectionEngine(log, tmp_path) as other:
        engine.register("numbers", Numbers())
        other.register("numbers", Numbers())
        await engine.catch_up("numbers")
        with pytest.raises(StateBusyError, match="another process"):
            await other.catch_up("numbers")
        with pytest.raises(StateBusyError):
            await other.rebuild("numbers")
        assert rows_in(tmp_path) == expected(100)
        engine.close()
        manifests = await other.catch_up("numbers")
        assert sum(manifest.events for manifest in manifests) == 100
        assert dict(other.scan("numbers")) == expected(100)


async def test_a_damaged_file_is_discarded_and_made_anew(log: EventLog, tmp_path: Path) -> None:
    said: list[str] = []
    [place, *_] = await add(log, 0, 100)
    with ProjectionEngine(log, tmp_path, report=said.append) as engine:
        engine.register("numbers", Numbers())
        await engine.catch_up("numbers")
        engine.close()
        path = state_path(tmp_path, Numbers(), TopicPartition(place.topic, place.partition))
        path.write_bytes(b"something else" * 1000)
        assert await engine.get_state("numbers") == expected(100)
        fold_file = engine.file("numbers", TopicPartition(place.topic, place.partition))
        assert fold_file is not None
        fold_file._db.execute("UPDATE row SET value = x'00' WHERE value <> x''")
        engine.close()  # what it has in memory would only be written over the damage
        await add(log, 100, 200)
        assert await engine.get_state("numbers") == expected(200)
    assert len(said) == 2
    assert all(str(path) in text and "folded again" in text for text in said)


async def test_a_damaged_file_takes_no_other_partition_with_it(log: EventLog, tmp_path: Path) -> None:
    said: list[str] = []
    seen: Counter[TopicPartition] = Counter()

    def call(function: Callable[..., Any], *args: Any) -> Any:
        if function.__name__ == "apply":
            seen[where[args[1].partition_key]] += 1
        return function(*args)

    placed = await add(log, 0, 100)
    where = {f"k{n % 20}": TopicPartition(at.topic, at.partition) for n, at in enumerate(placed)}
    with ProjectionEngine(log, tmp_path, report=said.append, call=call) as engine:
        engine.register("numbers", Numbers())
        await engine.catch_up("numbers")
        partitions = sorted(set(where.values()))
        assert len(partitions) > 2
        for damaged in partitions[:2]:
            file = engine.file("numbers", damaged)
            assert file is not None
            file._db.execute("UPDATE row SET value = x'00' WHERE value <> x''")
        engine.close()
        await add(log, 100, 200)
        before = Counter(seen)
        assert await engine.get_state("numbers") == expected(200)
    assert {tp: seen[tp] / before[tp] for tp in partitions} == {
        tp: 3 if tp in partitions[:2] else 2 for tp in partitions
    }
    assert len(said) == 2


async def test_a_file_that_is_damaged_again_at_once_is_an_error(log: EventLog, tmp_path: Path) -> None:
    said: list[str] = []
    await add(log, 0, 100)

    def call(function: Callable[..., Any], *args: Any) -> Any:
        if function.__name__ == "apply":
            raise StateFileError("a disk that is no good.")
        return function(*args)

    with ProjectionEngine(log, tmp_path, report=said.append, call=call) as engine:
        engine.register("numbers", Numbers())
        with pytest.raises(StateFileError, match="no good"):
            await engine.catch_up("numbers")
    assert 1 <= len(said) <= 4


async def test_a_topic_that_is_made_anew_while_the_engine_is_open_is_folded_from_its_beginning(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    await add(log, 0, 100)
    with ProjectionEngine(log, report=said.append) as engine:
        engine.register("numbers", Numbers())
        await engine.catch_up("numbers")
        before = await log.layout()

        async def anew() -> dict[str, TopicShape]:
            return {topic: TopicShape(shape.partitions, "another") for topic, shape in before.items()}

        monkeypatch.setattr(log, "layout", anew)
        assert await engine.get_state("numbers") == expected(100)
        manifests = await engine.catch_up("numbers")
    assert {manifest.identity.topic_id for manifest in manifests} == {"another"}
    assert len(said) == len(manifests)
    assert all("the topic was deleted and made anew" in text for text in said)


async def test_a_log_that_lacks_what_was_not_folded_yet_is_an_error(log: EventLog, tmp_path: Path) -> None:
    [place, *_] = await add(log, 0, 100)
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("numbers", Numbers())
        await engine.catch_up("numbers")
        await add(log, 100, 200)
        end = await log.end(place.topic)
        await log.truncate(place.topic, {place.partition: end[place.partition] - 1})
        for _ in range(2):
            with pytest.raises(LogTruncatedError):
                await engine.catch_up("numbers")
        engine.close()
        with pytest.raises(LogTruncatedError):
            await engine.catch_up("numbers")
    with ProjectionEngine(log) as fresh:
        fresh.register("numbers", Numbers())
        assert sum(len(row) for row in (await fresh.get_state("numbers")).values()) < 200, (
            "a new one may begin"
        )


async def test_catching_up_to_where_the_state_was_before_discards_nothing(
    log: EventLog, tmp_path: Path
) -> None:
    said: list[str] = []
    [place, *_] = await add(log, 0, 100)
    with ProjectionEngine(log, tmp_path, report=said.append) as engine:
        engine.register("numbers", Numbers())
        before = await engine.catch_up("numbers")
        assert await engine.catch_up("numbers", {place.topic: {place.partition: 1}}) == before
        assert dict(engine.scan("numbers")) == expected(100)
    assert said == []


async def test_an_event_that_stops_a_projection_keeps_what_came_before(log: EventLog, tmp_path: Path) -> None:
    class Picky(Numbers):
        on_error = "stop"

        def apply(self, state: list[int], event: EventEnvelope) -> list[int]:
            if event.payload["n"] == 50:
                raise ValueError("not this one")
            return super().apply(state, event)

    places = await add(log, 0, 100)
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("numbers", Picky())
        for _ in range(2):
            with pytest.raises(EventHeldError, match=f"@{places[50].offset} .*not this one"):
                await engine.catch_up("numbers")
        assert rows_in(tmp_path)["k10"] == [10, 30]
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("numbers", Numbers())
        assert await engine.get_state("numbers") == expected(100)


async def test_only_topics_and_types_that_are_wanted_are_folded(log: EventLog) -> None:
    class Noted(Numbers):
        name = "noted"
        event_types = ("demo.noted.",)

    class Shop(Numbers):
        name = "shop"
        topics = ("events.sh?p",)

    with ProjectionEngine(log) as engine:
        engine.register("noted", Noted())
        engine.register("shop", Shop())
        places = await log.append([counted(1, "k"), noted(2, "k"), sold(3, "k"), counted(4, "k")])
        assert await engine.get_state("noted") == {"k": [2]}
        assert await engine.get_state("shop") == {"k": [3]}
        await engine.wait_for("noted", places[3])


async def test_names_are_taken_once_and_known_or_an_error(log: EventLog) -> None:
    with ProjectionEngine(log) as engine:
        engine.register("numbers", Numbers())
        with pytest.raises(ProjectionError, match="There is a projection numbers already"):
            engine.register("numbers", Numbers())
        with pytest.raises(ProjectionError, match="again and numbers are both version 1 of numbers"):
            engine.register("again", Numbers())
        calls: list[Any] = [engine.get_state, engine.rebuild, engine.catch_up]
        for call in calls:
            with pytest.raises(ProjectionError, match="There is no projection nobody"):
                await call("nobody")
        with pytest.raises(ProjectionError, match="Register it first"):
            engine.query("nobody", "k")


async def test_an_engine_that_is_closed_answers_nothing(log: EventLog) -> None:
    engine = ProjectionEngine(log)
    engine.register("numbers", Numbers())
    await engine.catch_up("numbers")
    engine.close()
    with pytest.raises(ProjectionError, match="is closed"):
        engine.query("numbers", "a")
    with pytest.raises(ProjectionError, match="is closed"):
        next(engine.scan("numbers"))
    engine.close()


async def test_what_a_topic_had_that_is_gone_or_made_anew_is_in_no_state(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(40)])
    partitions = len(await log.end(topic))
    assert partitions > 1
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("numbers", Numbers())
        assert len(await engine.get_state("numbers")) == 40
        first = {record.key for record in await stored(log, topic) if record.partition == 0}
        end, beginning = await log.end(topic), await log.beginning(topic)

        async def answer(found: Any) -> Any:
            return found

        with monkeypatch.context() as anew:
            anew.setattr(log, "layout", lambda: answer({topic: TopicShape(1, "new")}))
            anew.setattr(log, "end", lambda topic: answer({0: end[0]}))
            anew.setattr(log, "beginning", lambda topic: answer({0: beginning[0]}))
            assert set(await engine.get_state("numbers")) == first
            assert [path.name for path in tmp_path.rglob("*.state")] == [f"{topic}-0.state"]
        with monkeypatch.context() as deleted:
            deleted.setattr(log, "layout", lambda: answer({}))
            assert await engine.get_state("numbers") == {}


async def test_a_file_whose_last_owner_folds_on_before_it_is_opened_is_kept(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.append([counted(n, "k") for n in range(3)])
    beginning = log.beginning
    said: list[str] = []

    async def another_folds_on(topic: str) -> dict[int, int]:
        monkeypatch.setattr(log, "beginning", beginning)
        await log.append([counted(n, "k") for n in range(3, 6)])
        with ProjectionEngine(log, tmp_path) as other:
            other.register("numbers", Numbers())
            await other.catch_up("numbers")
        return await beginning(topic)

    monkeypatch.setattr(log, "beginning", another_folds_on)
    with ProjectionEngine(log, tmp_path, report=said.append) as engine:
        engine.register("numbers", Numbers())
        assert await engine.get_state("numbers") == {"k": list(range(6))}
    assert said == []


class InJournals(Numbers):
    name = "in_journals"
    topics = ("agent.*.journal",)


async def add_to_journal(log: EventLog, run: str, numbers: range) -> list[Position]:
    journal = log.topology.journal("tester")
    writer = await log.writer("w")
    places = []
    for n in numbers:
        places += await writer.commit(outgoing([counted(n, run)], journal, 0, run, noesium_seq=b"%d" % n))
    await writer.close()
    return places


async def test_a_state_made_anew_takes_runs_up_where_a_journal_begins_now(
    log: EventLog, tmp_path: Path
) -> None:
    said: list[str] = []
    places = await add_to_journal(log, "old", range(4))
    await log.truncate(places[0].topic, {0: places[2].offset})
    with ProjectionEngine(log, tmp_path, report=said.append) as engine:
        engine.register("journals", InJournals())
        assert await engine.get_state("journals") == {"old": [2, 3]}
    assert ["the events before it are not in this state" in text for text in said] == [True]
    await add_to_journal(log, "old", range(3, 6))  # the first of them was there before
    await add_to_journal(log, "new", range(2))
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("journals", InJournals())
        assert await engine.get_state("journals") == {"old": [2, 3, 4, 5], "new": [0, 1]}
        await add_to_journal(log, "old", range(8, 9))
        with pytest.raises(SequenceGapError, match="lacks records 6 to 7 of the run old"):
            await engine.get_state("journals")


async def test_a_beginning_that_a_journal_lacks_is_a_gap_where_the_journal_is_whole(log: EventLog) -> None:
    await add_to_journal(log, "run", range(2, 4))
    with ProjectionEngine(log) as engine:
        engine.register("journals", InJournals())
        with pytest.raises(SequenceGapError, match="lacks records 0 to 1"):
            await engine.get_state("journals")
