"""What a state file says of itself, with a checksum: whose state it is, and how far it was folded."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import orjson

from noesium_stream.errors import StateFileError

FORMAT: Final = 1
MANIFEST_TABLE: Final = (
    "CREATE TABLE manifest (id INTEGER PRIMARY KEY, body BLOB NOT NULL, sum BLOB NOT NULL)"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a file has to be of, to be used."""

    projection: str
    version: int
    shape: str
    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a file says of itself.

    Attributes:
        cursor: the next offset to fold.
        events: how many events were folded, ever.
        last_event_id: of the last record that was read; None before the first.
        last_offset: of that record.
        last_ms: when the log took that record, in milliseconds.
        commits: how many times it was written.
        stamp: of the last commit; a later one has a greater one.
        held: dead letters in it.
        blocked: keys whose later events are held back.
        first: where the log began when the state was made; what was before it is not in it.
        migration: the event by which this version took over the state of the one before; None: it folded
            from the first event.
    """

    identity: Identity
    cursor: int = 0
    events: int = 0
    last_event_id: str | None = None
    last_offset: int | None = None
    last_ms: int = 0
    commits: int = 0
    stamp: int = 0
    held: int = 0
    blocked: int = 0
    first: int = 0
    migration: str | None = None
    format: int = FORMAT


_SAID: Final = {
    "projection": "it is of the projection {}",
    "version": "it is of version {}",
    "shape": "its states are of another type ({})",
    "topic": "it is of the topic {}",
    "topic_id": "the topic was deleted and made anew (its id was {})",
    "partition": "it is of partition {}",
}


def require(path: Path, found: Identity, wanted: Identity) -> None:
    """Raise `StateFileError`, which says what a file is of, where that is not what is wanted."""
    for field, text in _SAID.items():
        if getattr(found, field) != getattr(wanted, field):
            raise StateFileError(f"{path}: {text.format(getattr(found, field))}.")


def read_manifest(db: sqlite3.Connection, path: Path) -> Manifest:
    """The manifest of an open file.

    Raises:
        StateFileError: it is damaged, or of another format.
    """
    found = db.execute("SELECT body, sum FROM manifest WHERE id = 1").fetchone()
    if found is None or not isinstance(found[0], bytes) or _digest(found[0]) != found[1]:
        raise StateFileError(f"{path}: its manifest is damaged.")
    fields = orjson.loads(found[0])
    if fields.get("format") != FORMAT:
        raise StateFileError(f"{path} has the format {fields.get('format')}, not {FORMAT}.")
    return Manifest(**{**fields, "identity": Identity(**fields["identity"])})


def begin_manifest(db: sqlite3.Connection, manifest: Manifest) -> None:
    """Put the first one into a new file."""
    body = orjson.dumps(asdict(manifest))
    db.execute("INSERT INTO manifest (id, body, sum) VALUES (1, ?, ?)", (body, _digest(body)))


def put_manifest(db: sqlite3.Connection, manifest: Manifest) -> None:
    """Write it, as a part of the open transaction."""
    body = orjson.dumps(asdict(manifest))
    db.execute("UPDATE manifest SET body = ?, sum = ? WHERE id = 1", (body, _digest(body)))


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
