"""A newer version that goes on from the older one's state, as an event on the log says (RFC-0004 §8.3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import (
    ConfigError,
    ImpureProjectionError,
    LogCorruptError,
    ProjectionError,
    ProjectionLoadError,
    SequenceGapError,
    StateBusyError,
)
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import MigratedTopic
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, Position, TopicPartition
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.base import AnyProjection, BaseProjection
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.fold.redrive import REQUEST
from noesium_stream.projection.purity_check import PurityCheck
from noesium_stream.projection.state.atomic_file import written_whole
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import state_path
from noesium_stream.projection.stored.stored_projection import describe, open_stored_projection
from noesium_stream.projection.versions import state_until as until
from noesium_stream.projection.versions.migration_event import Migration, migration_now, migration_of, say
from noesium_stream.projection.versions.open_migrated import migrate
from noesium_stream.projection.versions.state_at import state_at
from noesium_stream.projection.versions.state_until import At
from tests.support.events import catalogue, counted, outgoing
from tests.support.migrating import Fees, FeesByHundred, add_fees
from tests.support.reading import PATIENCE_S

CLOCK = VirtualClock()
KEYS = [f"k{n}" for n in range(7)]


class FeesByThousand(FeesByHundred):
    version = 3
    previous_version = FeesByHundred

    def apply(self, state: dict[str, int], event: EventEnvelope) -> dict[str, int] | None:
        return {**state, "new": state["new"] + 1000} if event.payload["n"] else None

    def migrate(self, key: str, state: Any) -> dict[str, int] | None:
        return dict(state)


class Alone(FeesByHundred):
    previous_version = None


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=3", catalogue=catalogue())
    yield log
    await log.close()


async def state(log: EventLog, folder: Path | None, projection: AnyProjection, **options: Any) -> Any:
    with ProjectionEngine(log, folder, **options) as engine:
        engine.register("fees", projection)
        return await engine.get_state("fees")


async def test_what_lies_before_the_event_stays_as_the_older_version_decided(
    log: EventLog, tmp_path: Path
) -> None:
    await add_fees(log, *KEYS, *KEYS, "closed")
    await state(log, tmp_path, Fees())
    assert await migrate(log, FeesByHundred(), tmp_path, CLOCK)
    await add_fees(log, "k0", "new")
    expected = {key: {"old": 2, "new": 0} for key in KEYS}
    expected |= {"k0": {"old": 2, "new": 100}, "new": {"old": 0, "new": 100}}
    assert await state(log, tmp_path, FeesByHundred()) == expected
    assert await state(log, tmp_path, FeesByHundred()) == expected, "it goes on from its own files"
    assert await state(log, None, FeesByHundred()) == expected, "elsewhere, from the log alone"
    assert (await state(log, tmp_path, Fees()))["k0"] == 3, "the older one goes on beside it"


async def test_what_another_process_is_about_to_write_beside_a_state_stays_where_it_begins(
    log: EventLog, tmp_path: Path
) -> None:
    [place] = await add_fees(log, "a")
    await migrate(log, FeesByHundred(), tmp_path, CLOCK)
    path = state_path(tmp_path, FeesByHundred(), TopicPartition(place.topic, place.partition))
    killed = path.with_name(f".{path.name}.migrating.1")
    killed.mkdir(parents=True)
    request = Path(f"{path}.1{REQUEST}")
    with written_whole(request) as unfinished:
        assert await state(log, tmp_path, FeesByHundred()) == {"a": {"old": 1, "new": 0}}
        unfinished.write_text("all")
    assert request.read_text() == "all"
    assert not killed.exists()


async def test_without_the_event_all_is_folded_by_the_newer_version(log: EventLog) -> None:
    await add_fees(log, "a", "a")
    assert await state(log, None, FeesByHundred()) == {"a": {"old": 0, "new": 200}}


async def test_the_first_event_counts_and_a_second_one_is_not_said(log: EventLog, tmp_path: Path) -> None:
    await add_fees(log, "a")
    assert await migrate(log, FeesByHundred(), tmp_path, CLOCK)
    first = await migration_of(log, FeesByHundred())
    await add_fees(log, "a")
    assert not await migrate(log, FeesByHundred(), tmp_path, CLOCK)
    assert await migration_of(log, FeesByHundred()) == first
    assert await state(log, tmp_path, FeesByHundred()) == {"a": {"old": 1, "new": 100}}


async def test_versions_follow_one_another(log: EventLog, tmp_path: Path) -> None:
    for projection in (FeesByHundred(), FeesByThousand()):
        await add_fees(log, "a", "b")
        assert await migrate(log, projection, tmp_path, CLOCK)
    await add_fees(log, "a")
    expected = {"a": {"old": 1, "new": 1100}, "b": {"old": 1, "new": 100}}
    assert await state(log, tmp_path, FeesByThousand()) == expected
    assert await state(log, None, FeesByThousand()) == expected


async def test_a_state_that_was_folded_without_it_is_made_anew(log: EventLog, tmp_path: Path) -> None:
    said: list[str] = []
    await add_fees(log, "a", "a")
    await state(log, tmp_path, FeesByHundred())
    await migrate(log, FeesByHundred(), tmp_path, CLOCK)
    for _ in range(2):
        found = await state(log, tmp_path, FeesByHundred(), report=said.append)
        assert found == {"a": {"old": 2, "new": 0}}
    [text] = said
    assert "the log says that this version begins otherwise" in text

    assert await state(log, tmp_path, Alone(), report=said.append) == {"a": {"old": 0, "new": 200}}
    assert len(said) == 2


async def test_a_damaged_file_is_made_anew_from_the_older_versions_state(
    log: EventLog, tmp_path: Path
) -> None:
    [place] = await add_fees(log, "a")
    await migrate(log, FeesByHundred(), tmp_path, CLOCK)
    await add_fees(log, "a")
    await state(log, tmp_path, FeesByHundred())
    tp = TopicPartition(place.topic, place.partition)
    state_path(tmp_path, FeesByHundred(), tp).write_bytes(b"damaged")
    assert await state(log, tmp_path, FeesByHundred()) == {"a": {"old": 1, "new": 100}}


async def test_one_that_is_attached_begins_there_too(log: EventLog, tmp_path: Path) -> None:
    await add_fees(log, "a", "b")
    await migrate(log, FeesByHundred(), tmp_path, CLOCK)
    async with AttachedProjection(log, FeesByHundred(), tmp_path) as attached:
        [place] = await add_fees(log, "a")
        await attached.wait_for(place)
        await attached.wait_until_caught_up()
        assert dict(attached.scan()) == {"a": {"old": 1, "new": 100}, "b": {"old": 1, "new": 0}}


async def test_where_it_would_fail_nothing_is_said(log: EventLog, tmp_path: Path) -> None:
    class Unable(FeesByHundred):
        def migrate(self, key: str, state: int) -> dict[str, int] | None:
            return {"old": 1 // (state - 1), "new": 0}

    await add_fees(log, "a")
    with pytest.raises(ProjectionError, match=r"`migrate` of fees v2 cannot take the row 'a': ZeroDivision"):
        await migrate(log, Unable(), tmp_path, CLOCK)
    assert await migration_of(log, Unable()) is None
    await add_fees(log, "a", n=-1)
    await add_fees(log, "a")
    with pytest.raises(ProjectionError, match=r"fees v1 has 2 dead letters in noesium\.events\.demo"):
        await migrate(log, FeesByHundred(), tmp_path, CLOCK)
    assert await migration_of(log, FeesByHundred()) is None


class Timed(FeesByHundred):
    def migrate(self, key: str, state: int) -> dict[str, int] | None:
        return {"old": int(time.time()), "new": 0}


class Counting(FeesByHundred):
    calls = 0

    def migrate(self, key: str, state: int) -> dict[str, int] | None:
        self.calls += 1
        return {"old": self.calls, "new": 0}


@pytest.mark.parametrize(
    ("projection", "said"),
    [
        (Timed(), r"`migrate` of the projection fees reads the clock at .*, for the row 'a'"),
        (Counting(), r"another result when it was called again: state\.old: 1, then 2, for the row 'a'"),
    ],
)
async def test_a_migration_that_is_not_pure_is_found_when_it_is_checked(
    log: EventLog, tmp_path: Path, projection: FeesByHundred, said: str
) -> None:
    await add_fees(log, "a")
    with pytest.raises(ImpureProjectionError, match=said):
        await migrate(log, projection, tmp_path, CLOCK, PurityCheck(projection))
    assert await migration_of(log, projection) is None
    pure = FeesByHundred()
    assert await migrate(log, pure, tmp_path, CLOCK, PurityCheck(pure))
    found = await state(log, tmp_path, pure, call=PurityCheck(pure))
    assert found == {"a": {"old": 1, "new": 0}}


async def test_it_is_not_begun_while_another_process_folds_the_newer_version(
    log: EventLog, tmp_path: Path
) -> None:
    await add_fees(log, "a")
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("fees", FeesByHundred())
        await engine.get_state("fees")
        with pytest.raises(StateBusyError, match="fees v2 is folded by another process"):
            await migrate(log, FeesByHundred(), tmp_path, CLOCK)
    assert await migration_of(log, FeesByHundred()) is None


async def test_the_code_has_to_name_the_version_that_the_log_names(log: EventLog, tmp_path: Path) -> None:
    class Skips(FeesByThousand):
        previous_version = Fees

    await add_fees(log, "a")
    await migrate(log, FeesByThousand(), tmp_path, CLOCK)
    with pytest.raises(ProjectionError, match="takes over from v2, and its code that it does from v1"):
        await state(log, None, Skips())


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("previous_version", 7, "previous_version is 7, not the class of a projection"),
        (
            "previous_version",
            FeesByThousand,
            "previous_version is FeesByThousand, not an earlier version of fees",
        ),
        ("name", "other", "previous_version is Fees, not an earlier version of other"),
        ("migrate", BaseProjection.migrate, "previous_version is Fees, and `migrate` is not declared"),
        ("key", BaseProjection.key, "of which either it or this one is a table, not both"),
    ],
)
def test_a_wrong_declaration_is_one_clear_error(attribute: str, value: Any, said: str) -> None:
    with pytest.raises(ProjectionLoadError) as raised:
        type("Wrong", (FeesByHundred,), {attribute: value})().check()
    assert said in raised.value.message
    assert raised.value.hint


async def test_one_that_names_no_older_version_cannot_take_over(log: EventLog, tmp_path: Path) -> None:
    with pytest.raises(ProjectionLoadError, match="does not say which version was before it"):
        await migrate(log, Fees(), tmp_path, CLOCK)


async def test_a_state_of_the_past_is_that_of_the_version_that_folded_then(tmp_path: Path) -> None:
    log = await open_log(f"sqlite:///{tmp_path}/log.db?partitions=1", catalogue=catalogue())
    try:
        places = await add_fees(log, "a", "a")
        await migrate(log, FeesByHundred(), tmp_path, CLOCK)
        places += await add_fees(log, "a", "a")
        await state(log, tmp_path, FeesByHundred())
        describe(tmp_path, FeesByHundred(), "g", "tests:FeesByHundred")
        stored = open_stored_projection(tmp_path, "fees", 2, load=lambda reference: FeesByHundred())

        async def at(place: Position) -> dict[str, Any]:
            async with state_at(log, FeesByHundred(), stored, At(place), load=lambda _: Fees()) as past:
                return dict(past.rows())

        assert await at(places[3]) == {"a": {"old": 2, "new": 200}}
        assert await at(places[2]) == {"a": {"old": 2, "new": 100}}
        assert await at(places[1]) == {"a": {"old": 2, "new": 0}}
        with pytest.raises(
            ConfigError, match=r"Version 2 of fees begins at .*@2; before that .* version 1's"
        ):
            await at(places[0])
    finally:
        await log.close()


async def test_a_time_at_which_the_newer_version_was_not_there_is_said(tmp_path: Path) -> None:
    clock = VirtualClock()
    log = await open_log(f"sqlite:///{tmp_path}/log.db?partitions=1", catalogue=catalogue(), clock=clock)
    try:
        await add_fees(log, "a")
        early_ms = clock.now_ms()
        clock.advance(10)
        await add_fees(log, "a")
        await migrate(log, FeesByHundred(), tmp_path, clock)
        late_ms = clock.now_ms()
        await state(log, tmp_path, FeesByHundred())
        describe(tmp_path, FeesByHundred(), "g", "tests:FeesByHundred")
        stored = open_stored_projection(tmp_path, "fees", 2, load=lambda reference: FeesByHundred())

        async def at(time_ms: int) -> dict[str, Any]:
            moment = At(time_ms=time_ms)
            async with state_at(log, FeesByHundred(), stored, moment, load=lambda _: Fees()) as past:
                return dict(past.rows())

        assert await at(late_ms) == {"a": {"old": 2, "new": 0}}
        with pytest.raises(ConfigError, match=r"begins at .*@2; before that its state was version 1's"):
            await at(early_ms)
    finally:
        await log.close()


async def test_a_state_of_the_past_rests_on_no_copy_that_began_otherwise(tmp_path: Path) -> None:
    log = await open_log(f"sqlite:///{tmp_path}/log.db?partitions=1", catalogue=catalogue())
    try:
        places = await add_fees(log, "a", "a")
        await state(log, tmp_path, FeesByHundred())  # from the first event
        describe(tmp_path, FeesByHundred(), "g", "tests:FeesByHundred")
        await migrate(log, FeesByHundred(), tmp_path, CLOCK)
        stored = open_stored_projection(tmp_path, "fees", 2, load=lambda reference: FeesByHundred())
        async with state_at(log, FeesByHundred(), stored, At(places[1]), load=lambda _: Fees()) as past:
            assert dict(past.rows()) == {"a": {"old": 2, "new": 0}}
        await state(log, tmp_path, FeesByHundred())  # from the older one's state
        async with state_at(log, Alone(), stored, At(places[1]), load=lambda _: Fees()) as past:
            assert dict(past.rows()) == {"a": {"old": 0, "new": 200}}
    finally:
        await log.close()


class Journalled(Fees):
    topics = ("agent.*.journal",)


class JournalledByHundred(FeesByHundred):
    topics = ("agent.*.journal",)
    previous_version = Journalled


async def test_the_numbers_of_a_run_go_on_where_they_were(log: EventLog, tmp_path: Path) -> None:
    journal = log.topology.journal("tester")
    writer = await log.writer("w")

    async def write(*numbers: int) -> None:
        for number in numbers:
            sequence = {"noesium_seq": str(number).encode()}
            await writer.commit(outgoing([counted(1, "run")], journal, 0, "run", **sequence))

    await write(0, 1)
    await migrate(log, JournalledByHundred(), tmp_path, CLOCK)
    await write(1, 2)
    assert await state(log, tmp_path, JournalledByHundred()) == {"run": {"old": 2, "new": 100}}
    await write(4)
    with pytest.raises(SequenceGapError, match="lacks records 3 to 3"):
        await state(log, tmp_path, JournalledByHundred())


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=30),
    cut=st.integers(0, 30),
    caught_up=st.lists(st.integers(0, 30), max_size=3),
    zeros=st.sets(st.integers(0, 30)),
)
async def test_it_is_the_same_state_wherever_and_whenever_it_is_folded(
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[str],
    cut: int,
    caught_up: list[int],
    zeros: set[int],
) -> None:
    folder = tmp_path_factory.mktemp("migrated")
    log = await open_log("memory://?partitions=2", catalogue=catalogue())
    try:
        old: dict[str, int] = {}
        new: dict[str, dict[str, int]] | None = None
        for index, key in enumerate(keys):
            if index == cut:
                await migrate(log, FeesByHundred(), folder, CLOCK)
                new = {one: {"old": count, "new": 0} for one, count in old.items()}
            n = 0 if index in zeros else 1
            await add_fees(log, key, n=n)
            if new is None:
                old[key] = old.get(key, 0) + 1
                if not n:
                    del old[key]
            else:
                row = new.get(key, {"old": 0, "new": 0})
                new[key] = {**row, "new": row["new"] + 100}
                if not n:
                    del new[key]
            if index in caught_up:
                await state(log, folder, Fees())
        if new is not None:
            assert await state(log, folder, FeesByHundred()) == new
            assert await state(log, None, FeesByHundred()) == new
    finally:
        await log.close()


async def test_what_could_not_be_written_whole_takes_nothings_place(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_fees(log, *KEYS)
    await migrate(log, FeesByHundred(), tmp_path, CLOCK)
    carry_over = until._carry_over
    readers: list[StateFile] = []

    async def looked_at(*arguments: Any) -> None:
        await carry_over(*arguments)
        # A reader keeps SQLite from moving its log into the file when it is closed, as a full disk does.
        readers.append(StateFile.open_to_read(arguments[4].path))

    with monkeypatch.context() as patch:
        patch.setattr(until, "_carry_over", looked_at)
        with pytest.raises(ProjectionError, match="cannot be written"):
            await state(log, tmp_path, FeesByHundred())
    for reader in readers:
        reader.close()
    assert await state(log, tmp_path, FeesByHundred()) == {key: {"old": 1, "new": 0} for key in KEYS}


async def test_a_log_that_has_lost_what_a_version_begins_with_is_not_waited_for(
    log: EventLog, tmp_path: Path
) -> None:
    [place] = await add_fees(log, "a")
    begins = await migration_now(log, FeesByHundred(), [place.topic])
    further = MigratedTopic(
        topic_id=begins.topics[place.topic].topic_id, offsets={str(place.partition): place.offset + 3}
    )
    await say(log, FeesByHundred(), Migration("", {place.topic: further}), CLOCK)
    with pytest.raises(LogCorruptError, match="ends at offset 1, and is needed up to 3"):
        await asyncio.wait_for(state(log, tmp_path, FeesByHundred()), PATIENCE_S)
