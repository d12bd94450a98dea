"""A new file that two open at the same moment, and a file that cannot be opened or written."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.log.sqlite import file
from noesium_stream.log.sqlite.file import connect, translate


@pytest.mark.parametrize("moment", ["PRAGMA application_id", "PRAGMA user_version"])
def test_a_file_that_another_one_makes_while_it_is_looked_at_is_no_foreign_database(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.db"
    plain = sqlite3.connect
    overtaken = []

    class Overtaken(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql != moment or overtaken:
                return super().execute(sql, *values)
            overtaken.append(sql)
            [(answer,)] = super().execute(sql).fetchall()
            monkeypatch.setattr(sqlite3, "connect", plain)
            # Where the first one holds the file, the other one has to wait: then it comes later.
            with contextlib.suppress(sqlite3.OperationalError):
                connect(path, "FULL").close()
            return super().execute(f"SELECT {answer}")

    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **options: plain(*args, factory=Overtaken, **options)
    )
    first = connect(path, "FULL")
    second = connect(path, "FULL")
    assert overtaken == [moment]
    for each in (first, second):
        assert each.execute("SELECT count(*) FROM topic").fetchone() == (0,)
        each.close()


@pytest.mark.parametrize(
    ("code", "what"), [(sqlite3.SQLITE_CANTOPEN, "opened"), (sqlite3.SQLITE_READONLY, "written")]
)
def test_a_file_that_may_not_be_used_is_said_to_be_unreadable_or_unwritable_as_it_is(
    code: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.db"
    path.touch()
    error = sqlite3.OperationalError("no")
    error.sqlite_errorcode = code
    monkeypatch.setattr(file.os, "access", lambda one, mode: one != path)
    said = translate(path, error)
    assert said.message == f"{path} cannot be {what}: no."
    assert (f"Let this user use {path}, which belongs to" in str(said.hint)) is (what == "opened")
