from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from noesium_stream.cli.session import open_configured
from noesium_stream.config import load_all
from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.broker.local import LocalBroker
from noesium_stream.log.open import open_log
from noesium_stream.private_files import make_file, make_folder, permission_advice
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.stored.export import export
from noesium_stream.projection.stored.stored_projection import describe, open_stored_projection
from tests.support.attach import Numbers
from tests.support.envelopes import envelope, open_catalogue
from tests.support.events import catalogue, counted


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def modes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): mode(path)
        for path in sorted(folder.rglob("*"))
        if mode(path) != ("0o700" if path.is_dir() else "0o600")
    }


async def test_a_log_and_the_states_made_from_it_are_their_owners_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    log = await open_log(f"sqlite:///{home}/deep/log.db?partitions=1", catalogue=catalogue())
    await log.append([counted(n) for n in range(3)])
    assert {path.name for path in (home / "deep").iterdir()} >= {"log.db", "log.db-wal", "log.db-shm"}
    with ProjectionEngine(log, home / "states") as engine:
        engine.register("numbers", Numbers())
        await engine.catch_up("numbers")
        describe(home / "states", Numbers(), "a group", "tests:Numbers")
        stored = open_stored_projection(home / "states", "numbers", load=lambda _: Numbers())
        for name in ("out.db", "out.jsonl"):
            export(stored, home / name)
        assert modes(home) == {}
    await log.close()
    assert mode(home) == "0o700"


async def test_the_home_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    loaded = load_all(env={"NOESIUM_HOME": str(tmp_path / "a" / "home")}, folder=tmp_path)
    await (await open_configured(loaded)).close()
    assert modes(tmp_path) == {}


async def test_a_file_and_folders_that_exist_keep_their_modes(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    path = shared / "log.db"
    await (await open_log(f"sqlite:///{path}")).close()
    path.chmod(0o644)
    log = await open_log(f"sqlite:///{path}", catalogue=open_catalogue())
    await log.append([envelope()])
    assert (mode(shared), mode(path)) == ("0o755", "0o644")
    await log.close()


def test_the_brokers_settings_are_their_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, object]] = []

    class Process:
        pid = os.getpid()

        def __init__(self, command: list[str], **how: object) -> None:
            started.append(how)

        def poll(self) -> None:
            return None

    broker = LocalBroker(tmp_path / "home", 0)
    monkeypatch.setattr("noesium_stream.log.broker.local.runtime", lambda progress: _Java())
    monkeypatch.setattr("noesium_stream.log.broker.local.subprocess.Popen", Process)
    monkeypatch.setattr("noesium_stream.log.broker.local.answers", lambda address, timeout_s: True)
    (tmp_path / "home").mkdir(mode=0o755)
    data = tmp_path / "home" / "broker" / "data"
    monkeypatch.setattr(LocalBroker, "_format", lambda self, kafka, properties: data.mkdir(mode=0o700))
    broker.up()
    assert [how["umask"] for how in started] == [0o077]
    assert modes(tmp_path / "home") == {}
    assert mode(tmp_path / "home") == "0o755"


class _Java:
    def command(self, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        return [*arguments]


def test_the_folder_that_bars_the_way_is_named_and_else_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, barred = tmp_path / "home" / "a" / "file", tmp_path / "home"
    file.parent.mkdir(parents=True)
    assert permission_advice(file).startswith(
        f"Let this user use {file}: "
    )  # it has no owner: it is not there
    file.touch()
    assert f"use {file}, which belongs to {file.owner()}:" in permission_advice(file)
    monkeypatch.setattr(os, "access", lambda path, mode: path not in (barred, file.parent))
    assert f"use {barred}, which belongs to {barred.owner()}:" in permission_advice(file)


def test_a_file_that_another_connection_has_locked_stays_locked(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make_file(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as first:
        first.execute("BEGIN EXCLUSIVE")
        make_file(path)
        pid = os.fork()
        if pid == 0:
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
                try:
                    other.execute("BEGIN EXCLUSIVE")
                except sqlite3.OperationalError:
                    os._exit(0)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0


async def test_a_folder_that_cannot_be_made_is_an_error_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogUnavailableError, match="cannot be made"):
        await open_log(f"sqlite:///{tmp_path}/file/log.db")
    with pytest.raises(OSError, match="exists"):
        make_folder(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        make_folder(tmp_path / "file" / "a")
    make_folder(tmp_path / "file2" / "a")
    make_folder(tmp_path / "file2" / "a")
