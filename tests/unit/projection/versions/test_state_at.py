"""States of the past: at every offset the fold of the prefix, from whatever copy it begins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import ConfigError
from noesium_stream.log.open import open_log
from noesium_stream.log.port import Position
from noesium_stream.log.topics import partition_of
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.group.member import group_of
from noesium_stream.projection.state import snapshots
from noesium_stream.projection.state.snapshots import snapshots_of
from noesium_stream.projection.stored.stored_projection import describe, open_stored_projection
from noesium_stream.projection.versions.state_at import parse_at, state_at
from noesium_stream.projection.versions.state_until import At
from tests.support.attach import Numbers
from tests.support.events import catalogue, counted

PARTITIONS = 2


def load(reference: str) -> AnyProjection:
    return Numbers()


@pytest.mark.parametrize("spoilt", ["nothing", "live", "copies"])
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=40),
    batches=st.lists(st.integers(1, 12), min_size=1),
)
async def test_at_every_offset_it_is_the_fold_of_the_prefix(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    spoilt: str,
    keys: list[str],
    batches: list[int],
) -> None:
    monkeypatch.setattr(snapshots, "FEWEST_EVENTS", 4)
    folder, clock = tmp_path_factory.mktemp("past"), VirtualClock()
    url = f"sqlite:///{folder}/log.db?partitions={PARTITIONS}"
    log = await open_log(url, catalogue=catalogue(), clock=clock)
    try:
        places: list[Position] = []
        times: list[int] = []
        with ProjectionEngine(log, folder) as engine:
            engine.register("numbers", Numbers())
            while len(places) < len(keys):
                size = batches[len(places) % len(batches)]
                part = range(len(places), min(len(places) + size, len(keys)))
                clock.advance(1)
                places += await log.append([counted(n, keys[n]) for n in part])
                times += [clock.now_ms()] * len(part)
                await engine.catch_up("numbers")
        describe(folder, Numbers(), group_of(log, Numbers()), "tests:Numbers")
        stored = open_stored_projection(folder, "numbers", load=load)
        for path in stored.files():
            if spoilt == "live":
                path.write_bytes(b"damaged")
            elif spoilt == "copies":
                for copy in snapshots_of(path):
                    copy.path.write_bytes(b"damaged")

        async def rows(at: At, key: str | None = None) -> dict[str, Any]:
            async with state_at(log, Numbers(), stored, at, key=key, load=load) as past:
                return dict(past.rows())

        for number, place in enumerate(places):
            seen = [n for n, p in enumerate(places) if p.partition == place.partition and p <= place]
            assert await rows(At(place)) == expected(seen, keys)
            before = [n for n in range(len(keys)) if times[n] <= times[number]]
            assert await rows(At(time_ms=times[number])) == expected(before, keys)
            mine = [n for n in before if partition_of(keys[n], PARTITIONS) == place.partition]
            assert await rows(At(time_ms=times[number]), keys[number]) == expected(mine, keys)
        assert await rows(At(time_ms=times[0] - 1)) == {}
    finally:
        await log.close()


def expected(numbers: list[int], keys: list[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for n in numbers:
        found.setdefault(keys[n], []).append(n)
    return found


async def test_nothing_is_left_out_where_the_clock_of_the_log_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log(f"sqlite:///{tmp_path}/log.db?partitions=1", catalogue=catalogue())
    try:
        await log.append([counted(n, "a") for n in range(4)])
        describe(tmp_path, Numbers(), group_of(log, Numbers()), "tests:Numbers")
        stored = open_stored_projection(tmp_path, "numbers", load=load)
        read = log.read_batches

        async def with_times(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
            async for batch in read(*arguments, **options):
                for record in batch:
                    record.timestamp_ms = (10, 30, 20, 40)[record.offset]
                yield batch

        monkeypatch.setattr(log, "read_batches", with_times)
        for time_ms, seen in ((5, None), (10, [0]), (20, [0]), (30, [0, 1, 2]), (40, [0, 1, 2, 3])):
            async with state_at(log, Numbers(), stored, At(time_ms=time_ms), load=load) as past:
                assert past.get("a") == seen
    finally:
        await log.close()


async def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    log = await open_log(f"sqlite:///{tmp_path}/log.db?partitions=2", catalogue=catalogue())
    try:
        [place] = await log.append([counted(1, "a")])
        describe(tmp_path, Numbers(), group_of(log, Numbers()), "tests:Numbers")
        stored = open_stored_projection(tmp_path, "numbers", load=load)
        for position, kind, said in (
            (place._replace(offset=1), ConfigError, "has no offset 1 yet"),
            (place._replace(partition=2), ConfigError, "has no partition 2"),
            (place._replace(topic="noesium.agent.x.inbox"), ConfigError, "does not fold"),
        ):
            with pytest.raises(kind, match=said):
                async with state_at(log, Numbers(), stored, At(position), load=load):
                    pass
    finally:
        await log.close()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("a.b/3@17", At(Position("a.b", 3, 17))),
        ("2026-03-01T12:00:00Z", At(time_ms=1_772_366_400_000)),
        ("2026-03-01T12:00:00", At(time_ms=1_772_366_400_000)),
        ("2026-03-01T13:00:00.250+01:00", At(time_ms=1_772_366_400_250)),
        ("2026-03-01", At(time_ms=1_772_323_200_000)),
    ],
)
def test_a_moment_is_a_position_or_a_time(text: str, at: At) -> None:
    assert parse_at(text) == at


@pytest.mark.parametrize(
    "text", ["", "yesterday", "a/b@c", "a/1@", "a/-1@2", "2026-13-01", "12:00", f"a/1@{'9' * 5_000}"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="neither a position nor a time"):
        parse_at(text)
