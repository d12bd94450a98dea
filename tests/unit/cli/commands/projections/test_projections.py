"""What `noesium projections` says of how far behind a state is, and when it was written."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from noesium_stream.cli.commands.projections.projections import oldest_ms, written_ms
from noesium_stream.clock import VirtualClock
from noesium_stream.log.open import open_log
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.stored_projection import describe, open_stored_projection
from tests.support.attach import Numbers
from tests.support.events import catalogue, counted


async def test_it_is_behind_as_long_as_the_oldest_event_waits_that_it_has_not_seen() -> None:
    clock = VirtualClock()
    log = await open_log("memory://?partitions=1", catalogue=catalogue(), clock=clock)
    times = []
    for n in range(3):
        clock.advance(60)
        times.append(clock.now_ms())
        [place] = await log.append([counted(n, "k")])
    end = await log.end(place.topic)
    assert [await oldest_ms(log, place.topic, {0: first}, end) for first in range(3)] == times
    assert await oldest_ms(log, place.topic, {0: 3}, end) is None
    await log.close()


async def test_of_several_partitions_the_oldest_counts() -> None:
    clock = VirtualClock()
    log = await open_log("memory://?partitions=4", catalogue=catalogue(), clock=clock)
    places, times = [], []
    for n in range(12):
        clock.advance(1)
        places += await log.append([counted(n, f"k{n}")])
        times.append(clock.now_ms())
    topic = places[0].topic
    seen = {place.partition: place.offset for place in reversed(places)}
    assert len(seen) > 2
    end = await log.end(topic)
    assert await oldest_ms(log, topic, seen, end) == times[0]
    seen[places[0].partition] += 1
    after = next(n for n, place in enumerate(places) if place.offset >= seen.get(place.partition, 0))
    assert after > 0
    assert await oldest_ms(log, topic, {p: at for p, at in seen.items() if at < end[p]}, end) == times[after]
    await log.close()


async def test_who_only_reads_has_written_nothing(tmp_path: Path) -> None:
    log = await open_log("memory://?partitions=1", catalogue=catalogue())
    await log.append([counted(1, "k")])
    describe(tmp_path, Numbers(), "g", None)
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("numbers", Numbers())
        await engine.catch_up("numbers")
    stored = open_stored_projection(tmp_path, "numbers", load=lambda reference: Numbers())
    [path] = stored.files()
    with closing(StateFile.open_to_read(path)):
        left = Path(f"{path}-wal")
        assert left.stat().st_size == 0, "SQLite makes one for a reader"
        os.utime(path, (1, 1))
        assert written_ms(stored) == 1_000
    left.write_bytes(b"x")
    os.utime(left, (2, 2))
    assert written_ms(stored) == 2_000
    await log.close()


@pytest.mark.parametrize(("gone", "written"), [("-wal", 1_000), ("", 2_000)])
def test_a_file_that_its_writer_takes_away_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str, written: int
) -> None:
    describe(tmp_path, Numbers(), "g", None)
    stored = open_stored_projection(tmp_path, "numbers", load=lambda reference: Numbers())
    assert written_ms(stored) is None
    path = stored.path / "t-0.state"
    for place, second in ((path, 1), (Path(f"{path}-wal"), 2)):
        place.write_bytes(b"x")
        os.utime(place, (second, second))
    stat = Path.stat

    def taken_away(self: Path, **options: bool) -> os.stat_result:
        """The file is there whenever it is looked for, and gone when it is looked at."""
        if self.name == f"{path.name}{gone}":
            self.unlink()
        return stat(self, **options)

    monkeypatch.setattr(Path, "exists", lambda self: True)
    monkeypatch.setattr(Path, "stat", taken_away)
    assert written_ms(stored) == written
