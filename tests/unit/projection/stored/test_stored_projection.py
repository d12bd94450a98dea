"""States in a folder, as other programs read and export them; and letters that are released there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ConfigError, ProjectionError, StateFileError
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.fold import redrive
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.fold.redrive import (
    Redriven,
    answer_requests,
    ask,
    redrive_file,
    redrive_files,
    requests_in,
)
from noesium_stream.projection.group.member import group_of
from noesium_stream.projection.state.atomic_file import write_whole
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.export import check_export, export
from noesium_stream.projection.stored.stored_projection import (
    ABOUT,
    StoredProjection,
    current_version,
    describe,
    make_current,
    open_stored_projection,
    stored_versions,
)
from noesium_stream.state_file.claim import locked
from tests.support.attach import Numbers, Sums
from tests.support.events import catalogue, counted
from tests.support.folding import History

KEYS = ["a", "ab", "b", "ü", "ä b\n\"c'", "🙂"]


def load(reference: str) -> AnyProjection:
    return {"tests:Sums": Sums, "tests:Numbers": Numbers, "tests:History": History}[reference]()


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    log = await open_log(f"sqlite:///{tmp_path}/log.db?partitions=3", catalogue=catalogue())
    await log.append([counted(n, KEYS[n % len(KEYS)]) for n in range(60)])
    yield log
    await log.close()


async def folded(
    log: EventLog, folder: Path, projection: AnyProjection, reference: str | None = None
) -> StoredProjection:
    describe(folder, projection, group_of(log, projection), reference)
    with ProjectionEngine(log, folder) as engine:
        engine.register(projection.name, projection)
        await engine.catch_up(projection.name)
    return open_stored_projection(folder, projection.name, projection.version, load=load)


ROWS = {key: [n for n in range(60) if KEYS[n % len(KEYS)] == key] for key in KEYS}


async def test_rows_are_read_without_the_code_in_the_order_of_their_bytes(
    log: EventLog, tmp_path: Path
) -> None:
    stored = await folded(log, tmp_path, Numbers())
    assert list(stored.rows()) == sorted(ROWS.items(), key=lambda row: row[0].encode())
    assert list(stored.rows("a")) == [("a", ROWS["a"]), ("ab", ROWS["ab"])]
    assert stored.get("🙂") == ROWS["🙂"]
    assert stored.get("nobody") is None
    assert list(stored.letters()) == []


async def test_parts_of_a_row_are_merged_by_the_code_or_not_told(log: EventLog, tmp_path: Path) -> None:
    stored = await folded(log, tmp_path, Sums(), "tests:Sums")
    assert dict(stored.rows()) == {str(d): sum(range(d, 60, 10)) for d in range(10)}
    assert stored.get("3") == sum(range(3, 60, 10))
    stored = await folded(log, tmp_path, Sums())  # attached by a program: its code is not known
    with pytest.raises(ProjectionError, match="has parts in several partitions"):
        stored.get("3")


async def test_versions_are_told_apart_and_one_is_current(log: EventLog, tmp_path: Path) -> None:
    class Second(Numbers):
        version = 2

    await folded(log, tmp_path, Numbers())
    second = await folded(log, tmp_path, Second())
    assert [(s.about.version, s.is_current()) for s in stored_versions(tmp_path, load)] == [
        (1, True),
        (2, False),
    ]
    assert open_stored_projection(tmp_path, "numbers", load=load).about.version == 1
    make_current(tmp_path, Second())
    assert second.is_current()
    assert open_stored_projection(tmp_path, "numbers", load=load).about.version == 2
    (tmp_path / "numbers" / "current").write_text("not a number")
    assert current_version(tmp_path / "numbers") == 1
    with pytest.raises(ProjectionError, match="There is no state of version 3 of the projection 'numbers'"):
        open_stored_projection(tmp_path, "numbers", 3, load=load)
    second.path.joinpath(ABOUT).write_text('{"name": 1}')
    with pytest.raises(
        ProjectionError, match=r"projection.json cannot be read: it lacks version, reference, group"
    ):
        open_stored_projection(tmp_path, "numbers", 2, load=load)


async def test_it_has_reached_an_end_when_all_files_have(log: EventLog, tmp_path: Path) -> None:
    stored = await folded(log, tmp_path, Numbers())
    topic = log.topology.events("demo")
    end = await log.end(topic)
    mine = {TopicPartition(topic, partition) for partition in end}
    assert stored.has_reached(mine, {topic: end})
    assert stored.has_reached(mine, {})
    assert not stored.has_reached({*mine, TopicPartition(topic, 9)}, {topic: end})
    assert not stored.has_reached(mine, {topic: {**end, 1: end[1] + 1}})
    stored.files()[0].write_bytes(b"")
    assert not stored.has_reached(mine, {topic: end})


# -- export ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rows.db", "rows.sqlite", "rows.jsonl", "rows.ndjson"])
async def test_all_rows_are_exported(log: EventLog, tmp_path: Path, name: str) -> None:
    stored = await folded(log, tmp_path, Numbers())
    path = tmp_path / name
    path.write_text("what was there before")
    assert export(stored, path) == len(KEYS)
    if path.suffix.endswith("l") or path.suffix == ".ndjson":
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        assert {line["key"]: line["state"] for line in lines} == ROWS
    else:
        with closing(sqlite3.connect(path)) as db:
            assert {key: json.loads(state) for key, state in db.execute("SELECT * FROM state")} == ROWS
    assert [found.name for found in tmp_path.glob(".rows*")] == []


@pytest.mark.parametrize("name", ["rows.db", "rows.jsonl"])
async def test_an_export_is_whole_or_not_at_all(log: EventLog, tmp_path: Path, name: str) -> None:
    stored = await folded(log, tmp_path, Numbers())
    path = tmp_path / name
    path.write_text("what was there before")
    stored.files()[1].write_bytes(b"no database")
    with pytest.raises(StateFileError):
        export(stored, path)
    assert path.read_text() == "what was there before"
    assert [found.name for found in tmp_path.glob(".rows*")] == []
    with pytest.raises(ProjectionError, match="cannot be written"):
        export(stored, tmp_path / "no" / "such" / name)


@pytest.mark.parametrize("name", ["rows", "rows.txt", ".db", "rows.db.gz"])
def test_a_name_that_says_no_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="names no format"):
        check_export(tmp_path / name)


# -- redrive ---------------------------------------------------------------------------------------------


async def letters(log: EventLog, folder: Path) -> StoredProjection:
    """Two keys that are held back, each by a -1 before a 5."""
    await log.append([counted(n, key) for key in ("x0", "x1") for n in (-1, 5)])
    return await folded(log, folder, History(), "tests:History")


async def test_letters_are_released_in_order_where_nobody_follows(log: EventLog, tmp_path: Path) -> None:
    stored = await letters(log, tmp_path)
    held = list(stored.letters())
    assert sorted((letter.key, letter.reason) for _, letter in held if letter.reason is not None) == [
        ("x0", "-1 is refused"),
        ("x1", "-1 is refused"),
    ]
    assert sorted(letter.key for _, letter in held if letter.reason is None) == ["x0", "x1"]
    for path in {path for path, _ in held}:
        assert redrive_file(log, History(), path, ["nobody"]) == Redriven(0, 0)
    done = [redrive_file(log, History(lambda n: False), path, ["x0"]) for path in {path for path, _ in held}]
    assert sum(one.folded for one in done if one is not None) == 2
    assert stored.get("x0") == [-1, 5]
    assert stored.get("x1") is None
    assert {letter.key for _, letter in stored.letters()} == {"x1"}


async def test_whoever_holds_the_file_is_asked_and_answers(log: EventLog, tmp_path: Path) -> None:
    stored = await letters(log, tmp_path)
    path = next(path for path, letter in stored.letters() if letter.key == "x1")
    with closing(StateFile.open_to_read(path)) as reader:
        identity = reader.manifest.identity
    with closing(StateFile.open(path, identity)) as file:
        allowing: AnyProjection = History(lambda n: False)
        fold: PartitionFold[Any] = PartitionFold(allowing, StateCodec(allowing), file, journal=False)
        assert requests_in(path.parent) == {}
        assert redrive_file(log, History(), path, ["x1"]) is None
        request = ask(path, ["x1"])
        assert requests_in(path.parent) == {path.name: [request]}
        assert answer_requests(log, fold, [request]) == Redriven(2, 0)
        assert not request.exists()
        assert stored.get("x1") == [-1, 5]
        for foreign in ("none of ours", '{"keys": 5}', '{"keys": [5]}'):
            request.write_text(foreign)
            assert answer_requests(log, fold, [request]) == Redriven(0, 0)
            assert not request.exists()
    assert [found for found in path.parent.iterdir() if ".redrive" in found.name] == []


async def test_all_requests_are_answered_whatever_comes_between(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await letters(log, tmp_path)
    path = next(path for path, letter in stored.letters() if letter.key == "x1")
    with closing(StateFile.open_to_read(path)) as reader:
        identity = reader.manifest.identity
    asked: list[Path] = []

    def meanwhile(wanted: Path, text: str) -> None:
        """Another process asks from beginning to end while this one is about to write its request."""
        monkeypatch.setattr(redrive, "write_whole", write_whole)
        asked.append(ask(path, ["x1"]))
        write_whole(wanted, text)

    def asks(n: int) -> bool:
        """A process asks while others are being answered."""
        asked.append(ask(path, ["later"]))
        return False

    with closing(StateFile.open(path, identity)) as file:
        asking: AnyProjection = History(asks)
        fold: PartitionFold[Any] = PartitionFold(asking, StateCodec(asking), file, journal=False)
        monkeypatch.setattr(redrive, "write_whole", meanwhile)
        asked.append(ask(path, ["nobody"]))
        before = list(asked)
        assert requests_in(path.parent) == {path.name: sorted(before)}
        assert answer_requests(log, fold, before) == Redriven(2, 0)
        assert stored.get("x1") == [-1, 5]
        later = asked[2:]
        assert len(later) == 2
        assert requests_in(path.parent) == {path.name: sorted(later)}
        assert answer_requests(log, fold, [*before, *later]) == Redriven(0, 0)
        assert requests_in(path.parent) == {}
        everybody = [ask(path, None), ask(path, ["x1"])]
        assert answer_requests(log, fold, everybody) == Redriven(0, 0)
        assert requests_in(path.parent) == {}


async def test_what_a_process_does_not_answer_before_it_leaves_is_done_by_who_has_asked(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await letters(log, tmp_path)
    paths = sorted({path for path, _ in stored.letters()})
    assert len(paths) == 2
    allowing: AnyProjection = History(lambda n: False)
    monkeypatch.setattr(redrive, "LOOK_S", 0.0)
    with locked(paths[0]) as lock:

        def asked(path: Path, keys: Sequence[str] | None) -> Path:
            request = ask(path, keys)
            lock.close()
            return request

        monkeypatch.setattr(redrive, "ask", asked)
        assert not await redrive_files(log, allowing, paths, None)
    assert list(stored.letters()) == []
    assert requests_in(paths[0].parent) == {}


async def test_who_never_answers_is_said(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await letters(log, tmp_path)
    path = next(path for path, _ in stored.letters())
    monkeypatch.setattr(redrive, "PATIENCE_S", 0.0)
    with locked(path), pytest.raises(ProjectionError, match="has not answered for 0 s"):
        await redrive_files(log, History(), [path], None)
    assert list(requests_in(path.parent)) == [path.name], "it is answered later"


async def test_a_name_that_a_request_has_is_given_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t-0.state"
    names = ["same", "same", "other"]

    @contextmanager
    def given(prefix: str, dir: Path) -> Iterator[str]:
        yield f"{dir / prefix}{names.pop(0)}"

    monkeypatch.setattr(redrive, "TemporaryDirectory", given)
    requests = [ask(path, ["a"]), ask(path, ["b"])]
    assert [json.loads(request.read_text()) for request in requests] == [{"keys": ["a"]}, {"keys": ["b"]}]
    assert requests_in(tmp_path) == {path.name: [requests[1], requests[0]]}


async def test_code_of_another_version_or_type_of_state_folds_nothing_on(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = await letters(log, tmp_path)
    [path, *_] = [path for path, _ in stored.letters()]

    class Other(History):
        version = 2

    class Texts(Sums):
        name = "history"

    before = path.read_bytes()
    for code in (Other(lambda n: False), Texts()):
        with pytest.raises(ProjectionError, match="it cannot fold on there"):
            redrive_file(log, code, path, None)
    assert path.read_bytes() == before
    assert redrive_file(log, History(lambda n: False), path, None) is not None
