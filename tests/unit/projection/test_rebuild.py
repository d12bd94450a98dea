"""Rebuilding beside what readers take: killed between any two changes of the folder, all files are whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import EventHeldError, ProjectionError, RebuildDiffersError, StateBusyError
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.projection import rebuild as module
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.group.member import group_of
from noesium_stream.projection.rebuild import Rebuilt, rebuild
from noesium_stream.projection.state import snapshots
from noesium_stream.projection.state.snapshots import snapshots_of
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.stored_projection import (
    StoredProjection,
    describe,
    open_stored_projection,
)
from noesium_stream.state_file.claim import discard, locked
from tests.support.attach import Numbers
from tests.support.events import catalogue, counted

KEYS = [f"k{n}" for n in range(9)]


class Doubled(Numbers):
    """Other code of the same version."""

    def apply(self, state: list[int], event: Any) -> list[int]:
        return [*state, 2 * event.payload["n"]]


def load(reference: str) -> AnyProjection:
    return Numbers()


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    log = await open_log(f"sqlite:///{tmp_path}/log.db?partitions=3", catalogue=catalogue())
    await add(log, 0, 200)
    yield log
    await log.close()


async def add(log: EventLog, first: int, last: int) -> None:
    await log.append([counted(n, KEYS[n % len(KEYS)]) for n in range(first, last)])


def rows(last: int, times: int = 1) -> dict[str, list[int]]:
    return {key: [times * n for n in range(last) if KEYS[n % len(KEYS)] == key] for key in KEYS}


async def folded(log: EventLog, folder: Path) -> StoredProjection:
    describe(folder, Numbers(), group_of(log, Numbers()), "tests:Numbers")
    with ProjectionEngine(log, folder) as engine:
        engine.register("numbers", Numbers())
        await engine.catch_up("numbers")
    return open_stored_projection(folder, "numbers", load=load)


async def rebuilt(log: EventLog, folder: Path, projection: AnyProjection, verify: bool = False) -> Rebuilt:
    return await rebuild(log, projection, folder, verify=verify, report=lambda text: None)


async def test_it_is_compared_at_the_very_positions_that_the_old_state_has(
    log: EventLog, tmp_path: Path
) -> None:
    stored = await folded(log, tmp_path)
    await add(log, 200, 300)
    assert await rebuilt(log, tmp_path, Numbers(), verify=True) == Rebuilt(300, 3, 0, len(KEYS))
    assert dict(stored.rows()) == rows(300)


async def test_where_it_differs_nothing_is_replaced(log: EventLog, tmp_path: Path) -> None:
    stored = await folded(log, tmp_path)
    before = {path: path.read_bytes() for path in stored.files()}
    with pytest.raises(RebuildDiffersError, match=r"the row 'k.' was .* and is .* Nothing was replaced"):
        await rebuilt(log, tmp_path, Doubled(), verify=True)
    assert {path: path.read_bytes() for path in stored.files()} == before
    assert not (tmp_path / ".rebuild" / "numbers").exists()


async def test_rows_that_one_of_them_lacks_are_a_difference(log: EventLog, tmp_path: Path) -> None:
    await folded(log, tmp_path)

    class Fewer(Numbers):
        def key(self, event: Any) -> str | None:
            return None if event.partition_key == "k8" else super().key(event)

    with pytest.raises(RebuildDiffersError, match=r"the row 'k8' was .* and is missing"):
        await rebuilt(log, tmp_path, Fewer(), verify=True)


async def test_there_has_to_be_something_to_compare_with(log: EventLog, tmp_path: Path) -> None:
    with pytest.raises(ProjectionError, match="There is no state in"):
        await rebuilt(log, tmp_path, Numbers(), verify=True)


async def test_an_event_that_cannot_be_folded_replaces_nothing_unless_it_may_be_held(
    log: EventLog, tmp_path: Path
) -> None:
    class Failing(Numbers):
        def apply(self, state: list[int], event: Any) -> list[int]:
            if event.payload["n"] == 8:
                raise ValueError("told to fail")
            return super().apply(state, event)

    stored = await folded(log, tmp_path)
    before = {path: path.read_bytes() for path in stored.files()}
    projection = Failing()
    for verify in (False, True):
        with pytest.raises(EventHeldError, match=r"ValueError: told to fail\. Nothing was replaced\."):
            await rebuilt(log, tmp_path, projection, verify=verify)
    assert {path: path.read_bytes() for path in stored.files()} == before
    assert projection.on_error == "hold", "as it is declared"
    found = await rebuild(log, projection, tmp_path, verify=False, report=lambda text: None, hold=True)
    held = len([n for n in range(200) if KEYS[n % len(KEYS)] == "k8"])
    assert found.held == held
    assert dict(stored.rows()) == {key: row for key, row in rows(200).items() if key != "k8"}


async def test_it_stays_away_from_other_processes(log: EventLog, tmp_path: Path) -> None:
    stored = await folded(log, tmp_path)
    before = {path: path.read_bytes() for path in stored.files()}
    with locked(stored.files()[1]), pytest.raises(StateBusyError):
        await rebuilt(log, tmp_path, Doubled())
    with locked(tmp_path / ".rebuild" / "numbers"), pytest.raises(StateBusyError):
        await rebuilt(log, tmp_path, Doubled())
    assert {path: path.read_bytes() for path in stored.files()} == before
    await rebuilt(log, tmp_path, Doubled())
    assert dict(stored.rows()) == rows(200, 2)


async def test_what_could_not_be_written_into_a_built_file_replaces_nothing(
    log: EventLog, tmp_path: Path
) -> None:
    stored = await folded(log, tmp_path)
    await add(log, 200, 400)
    readers: list[StateFile] = []

    def look_in(said: str) -> None:
        # A reader keeps SQLite from moving its log into the file when it is closed, as a full disk does.
        built = (tmp_path / ".rebuild").glob("*/*/*.state")
        readers.extend(map(StateFile.open_to_read, built))

    with pytest.raises(ProjectionError, match="cannot be written"):
        await rebuild(log, Numbers(), tmp_path, verify=True, report=look_in)
    assert len(readers) == 3
    for reader in readers:
        reader.close()
    assert dict(stored.rows()) == rows(200)
    await rebuilt(log, tmp_path, Numbers(), verify=True)
    assert dict(stored.rows()) == rows(400)


def states_in(path: Path) -> dict[str, list[int]]:
    with closing(StateFile.open_to_read(path)) as file:
        return {key[1:].decode(): json.loads(state) for key, state in file.scan(b"s")}


async def test_killed_between_any_two_changes_of_the_folder_every_file_is_whole(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "FEWEST_EVENTS", 10)
    await folded(log, tmp_path / "before")
    killed = 0
    for step in range(100):
        folder = tmp_path / f"at{step}"
        shutil.copytree(tmp_path / "before", folder)
        stored = open_stored_projection(folder, "numbers", load=load)
        assert all(snapshots_of(path) for path in stored.files())
        with monkeypatch.context() as patch:
            _kill_at(patch, step)
            try:
                await rebuilt(log, folder, Doubled())
                break
            except _Killed:
                killed += 1
        old, new = rows(200), rows(200, 2)
        for path in stored.files():
            found = states_in(path)
            assert found
            whole = old if all(old[key] == state for key, state in found.items()) else new
            assert all(whole[key] == state for key, state in found.items()), f"step {step}"
            for copy in snapshots_of(path):
                for key, state in states_in(copy.path).items():
                    assert whole[key][: len(state)] == state, f"step {step}: a copy is of the other code"
        with ProjectionEngine(log, folder) as engine:
            engine.register("numbers", Doubled())
            done = await engine.get_state("numbers")
        assert all(state in (old[key], new[key]) for key, state in done.items())
        assert done.keys() == old.keys()
        await rebuilt(log, folder, Doubled())
        assert dict(stored.rows()) == new
    assert killed >= 8
    assert dict(stored.rows()) == rows(200, 2)


async def test_a_partition_that_another_process_begins_meanwhile_is_let_be(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "FEWEST_EVENTS", 10)
    stored = await folded(log, tmp_path)
    old = stored.files()[0]
    copy = snapshots_of(old)[0].path
    others: list[Path] = []

    def other_begins(path: Path) -> None:
        if not others:
            state = path.with_name("t-0.state")
            others.extend([state, copy.with_name(copy.name.replace(old.stem, state.stem))])
            for other in others:
                other.parent.mkdir(exist_ok=True)
                other.write_bytes(b"its own")
        discard(path)

    monkeypatch.setattr(module, "discard", other_begins)
    await rebuilt(log, tmp_path, Doubled())
    assert [other.read_bytes() for other in others] == [b"its own"] * 2
    others[0].unlink()
    assert dict(stored.rows()) == rows(200, 2)
    assert all(snapshots_of(path) for path in stored.files())
    monkeypatch.undo()
    await rebuilt(log, tmp_path, Doubled())
    assert not others[1].exists(), "there is no state of which it is a copy"


class _Killed(BaseException):
    pass


def _kill_at(patch: pytest.MonkeyPatch, step: int) -> None:
    """Let the process die before the `step`th change that the take-over makes to the folder."""
    left = step
    real = module._take_over

    def take_over(*args: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:

            def dying(function: Callable[..., Any]) -> Callable[..., Any]:
                def call(*args: Any, **options: Any) -> Any:
                    nonlocal left
                    if left == 0:
                        raise _Killed
                    left -= 1
                    return function(*args, **options)

                return call

            inner.setattr(Path, "replace", dying(Path.replace))
            inner.setattr(os, "unlink", dying(os.unlink))
            inner.setattr(module.shutil, "rmtree", dying(shutil.rmtree))
            real(*args)

    patch.setattr(module, "_take_over", take_over)
