"""Export of a projection's state to a SQLite database or JSON lines."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import ConfigError, ProjectionError, brief
from noesium_stream.private_files import make_file, private
from noesium_stream.projection.state.atomic_file import written_whole
from noesium_stream.projection.stored.stored_projection import StoredProjection

_SQLITE: Final = (".db", ".sqlite", ".sqlite3")
_LINES: Final = (".jsonl", ".ndjson")
_BATCH: Final = 10_000


def export(stored: StoredProjection, path: Path) -> int:
    """Write all rows to a new file, atomically; return the number of rows.

    A SQLite database (`.db`, `.sqlite`) gets a table `state (key TEXT PRIMARY KEY, state TEXT)` with the
    state as JSON, for use with `json_extract`. JSON lines (`.jsonl`) are `{"key": …, "state": …}`.

    Raises:
        ConfigError: the suffix is neither.
        ProjectionError: the file cannot be written.
        StateFileError: the state is damaged.
    """
    check_export(path)
    try:
        with written_whole(path) as beside:
            rows = stored.rows()
            count = _database(beside, rows) if path.suffix in _SQLITE else _lines(beside, rows)
    except (OSError, sqlite3.Error) as error:
        raise ProjectionError(f"{path} cannot be written: {brief(error)}.") from error
    return count


def check_export(path: Path) -> None:
    """Validate the name of an export file.

    Raises:
        ConfigError: its suffix names no format.
    """
    if path.suffix not in _SQLITE + _LINES:
        raise ConfigError(
            f"{path} names no format.", hint="Let it end in .db or .sqlite (SQLite), or .jsonl (JSON lines)."
        )


def _database(path: Path, rows: Iterator[tuple[str, Any]]) -> int:
    count = 0
    make_file(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE state (key TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID")
        while batch := [(key, json.dumps(state, ensure_ascii=False)) for key, state in islice(rows, _BATCH)]:
            db.executemany("INSERT INTO state VALUES (?, ?)", batch)
            count += len(batch)
        db.commit()
    return count


def _lines(path: Path, rows: Iterator[tuple[str, Any]]) -> int:
    count = 0
    with open(path, "w", encoding="utf-8", opener=private) as file:
        for key, state in rows:
            file.write(json.dumps({"key": key, "state": state}, ensure_ascii=False) + "\n")
            count += 1
    return count
