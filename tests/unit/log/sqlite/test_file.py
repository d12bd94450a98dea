"""Two that open a new file at the same moment."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.log.sqlite.file import connect


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
