"""The machines' disks: what a worker keeps in its files outlives it, what it had not written does not."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Final
from unittest.mock import patch

from noesium_stream.state_file import checksummed_file
from noesium_stream.state_file.sqlite import PAGE_BYTES, Translating
from noesium_stream.worker.state import restore
from noesium_stream.worker.state.state_file import Identity, Manifest, StateFile
from tests.sim.loop import here

MEMORY: Final = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
"""Where files cost no waiting for a disk: it is processes that die here, not the power."""

LOSS: Final = 0.15
"""How often a machine that is started again has lost its disk."""


class Disks:
    """One for each place where a machine may stand; the next machine there finds what the last one left.

    Args:
        folder: for all of them.
        chance: which of them are lost.
        places: how many there are.
    """

    def __init__(self, folder: Path, chance: Random, places: int) -> None:
        self._folder = folder
        self._chance = chance
        self._places = places

    def home(self, number: int) -> Path:
        """The disk of a machine that starts; another one that stands still may have files open there."""
        home = self._folder / str(number % self._places)
        if home.exists() and self._chance.random() < LOSS:
            shutil.rmtree(home)
        return home


@contextmanager
def files_of_processes() -> Iterator[None]:
    """State files are closed when their process is killed: their open transactions and locks are gone.

    So what SQLite keeps beside a file against the loss of power may be in memory, and a file that is made is
    copied from another one: that halves what a file costs, of which a play opens a dozen.
    """
    true_open = restore.open_state_file

    def opened(path: Path, identity: Identity, discarded: Callable[[str], None]) -> StateFile:
        file = true_open(path, identity, discarded)
        here().last_words.append(file.close)
        return file

    with (
        patch.object(restore, "open_state_file", opened),
        patch.object(checksummed_file, "connect", _connect),
        patch.object(StateFile, "_create", _copy_empty),
        patch.object(checksummed_file, "keep_order", _keep_no_order),
    ):
        yield


_create: Final = StateFile._create


def _connect(path: Path) -> sqlite3.Connection:
    with Translating(path):
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = MEMORY")
    return db


def _keep_no_order(db: sqlite3.Connection) -> None:
    """There is no loss of power, and no disk that would be waited for."""


def _copy_empty(db: sqlite3.Connection, identity: Identity) -> Manifest:
    _empty().backup(db)
    file = StateFile(None, db, Manifest(identity), None)
    file.commit()
    return file.manifest


@cache
def _empty() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    _create(db, Identity("", "", 0))
    return db
