"""SQL texts of the toolkit `sql` for Postgres."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from noesium_stream.errors import ToolInputError

PLAIN_TYPES: Final = frozenset({16, 20, 21, 23, 26, 700, 701})
"""Types whose values are bool, int or float, by their numbers in pg_type; others are given as text."""

TABLES: Final = """
    SELECT n.nspname, c.relname, CASE WHEN c.relkind IN ('v', 'm') THEN 'view' ELSE 'table' END
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
      AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
      AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
      AND NOT (c.relname = coalesce($1::text, '') AND n.nspname = coalesce($2::text, ''))
"""
"""Tables and views: schema, name, kind; without one, by its name and schema."""

COLUMNS: Final = """
    SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
           coalesce(pg_catalog.array_position(i.indkey::int2[], a.attnum) + 1, 0)
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary
    WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
"""The columns of a table: name, type, whether it may be null, place in the primary key from 1."""

LOCKS: Final = """
    SELECT o.schema, o.name, o.type, l.mode
    FROM (
        SELECT DISTINCT coalesce(pg_catalog.pg_partition_root(relation), relation) AS relation, mode
        FROM pg_catalog.pg_lock_status() WHERE locktype = 'relation' AND pid = pg_catalog.pg_backend_pid()
    ) l CROSS JOIN LATERAL pg_catalog.pg_identify_object(1259, l.relation, 0) o
"""
"""The relations that this transaction has locked: schema, name, type, mode; of a partition, its table.

Only functions are called here: they keep no lock of a catalogue, which would be listed as well.
"""

EFFECTS: Final = """
    SELECT DISTINCT proname::text FROM pg_catalog.pg_proc
    WHERE (provolatile = 'v' OR proname LIKE 'pg\\_%' OR proname LIKE '%\\_to\\_xml%'
           OR proname IN ('current_setting', 'ts_stat'))
      AND proname NOT IN ('random', 'gen_random_uuid', 'clock_timestamp', 'pg_typeof', 'pg_size_pretty')
      AND (pg_catalog.strpos(pg_catalog.lower($1), pg_catalog.lower(proname::text)) > 0
           OR proname LIKE '%"%')
"""
"""Functions that may have effects, reach files or other servers, or tell of the server itself, and whose
names stand anywhere in a text."""

_MAX_NAME: Final = 63
"""Bytes of a name."""
_UNICODE: Final = re.compile(r'u&"', re.IGNORECASE)


def called(sql: str, names: Iterable[str]) -> set[str]:
    """Those of the functions that a statement may call, by what stands in its text.

    A function is called by its name alone, as a word or in quotes; so all words of the text are looked at,
    also in texts and comments: it finds more than are called, and never less.

    Raises:
        ToolInputError: a name is written in escapes, which hide it.
    """
    if _UNICODE.search(sql):
        raise ToolInputError('The statement is refused: names in U&"…" are not allowed.')
    text = sql + "\n" + sql.replace('""', '"')  # in quotes, a quote is doubled
    return {name for name in names if re.search(_word(name), text, re.IGNORECASE)}


def _word(name: str) -> str:
    # A word is cut at 63 bytes, so one that is longer may be this one.
    end = r"(?![\w$])" if len(name.encode()) < _MAX_NAME else ""
    return rf"(?<![A-Za-z_\x80-\U0010ffff]){re.escape(name)}{end}"


def wrapped(sql: str, types: Sequence[int], rows: int, characters: int, *, counted: bool) -> str:
    """A query that gives what a statement gives, within limits; its first column counts all rows, or is 0.

    The statement was prepared by itself before: its brackets and quotes are balanced.
    """
    names = [f"c{at}" for at in range(len(types))]
    shown = [
        name if kind in PLAIN_TYPES else f"pg_catalog.left({name}::text, {characters})"
        for name, kind in zip(names, types, strict=True)
    ]
    count = "pg_catalog.count(*) OVER ()" if counted else "0"
    return (
        f"WITH statement ({', '.join(names)}) AS (\n{sql}\n) "
        f"SELECT {count}, {', '.join(shown)} FROM statement LIMIT {rows}"
    )
