"""Which databases a question may name: files of one folder, and what the operator has set."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agents.analyst.databases import Databases
from noesium_stream.errors import ConfigError, ToolInputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for path in (
        folder / "shop.db",
        folder / "sales" / "june.db",
        folder / "home" / "log.db",
        tmp_path / "out.db",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE one (a INT)")
        connection.close()
    (folder / "notes.txt").write_text("no database")
    (folder / "link.db").symlink_to(tmp_path / "out.db")
    return folder


def test_a_file_of_the_folder_has_permissions_of_its_own(folder: Path) -> None:
    databases = Databases(str(folder / "shop.db"), folder, folder / "home")
    databases.check()
    assert databases.opened(None).prefix == ""
    assert databases.opened("shop.db").prefix == "shop.db/"
    assert databases.opened("sales/june.db").prefix == "sales/june.db/"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "../out.db",
            "/etc/passwd",
            "link.db",
            "home/log.db",
            "notes.txt",
            "missing.db",
            "sales",
            "sales/../shop.db",
        ),
        *("env:HOME", "postgresql://host/db", "shop.db\0", "shop*.db", "", "file:shop.db?mode=rw"),
    ],
)
def test_nothing_else_is_opened(folder: Path, name: str) -> None:
    databases = Databases("env:SHOP_DSN", folder, folder / "home")
    with pytest.raises(ToolInputError):
        databases.opened(name)


def test_a_question_without_a_database_says_how_to_give_one(folder: Path) -> None:
    with pytest.raises(ToolInputError, match="names no database"):
        Databases(None, folder, folder / "home").opened(None)


@pytest.mark.parametrize("own", ["missing.db", "env:", "env:a=b"])
def test_what_the_operator_has_mistyped_is_told_at_once(folder: Path, own: str) -> None:
    with pytest.raises(ConfigError):
        Databases(own, folder, folder / "home").check()
    with pytest.raises(ConfigError, match="no folder"):
        Databases(None, folder / "shop.db", folder).check()


def test_a_file_of_the_operator_that_is_no_database_is_told_at_once_with_what_to_do(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is no SQLite file") as told:
        Databases(str(folder / "notes.txt"), folder, folder / "home").check()
    assert told.value.hint is not None


@pytest.mark.parametrize("name", [None, "notes.txt", "missing.db", "../out.db", "home/log.db"])
def test_a_question_is_checked_without_a_run(folder: Path, name: str | None) -> None:
    with pytest.raises(ConfigError) as told:
        Databases(None, folder, folder / "home").check_question(name)
    assert told.value.hint is not None


def test_a_question_over_what_is_there_passes_and_a_server_is_not_asked(folder: Path) -> None:
    Databases(None, folder, folder / "home").check_question("shop.db")
    Databases(str(folder / "shop.db"), folder, folder / "home").check_question(None)
    Databases("env:SHOP_DSN", folder, folder / "home").check_question(None)
