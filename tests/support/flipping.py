"""Damaged state files: each is opened, caught up on a tail, and compared with a replay.

    python -m tests.support.flipping FOLDER SCENARIO

writes a state file into FOLDER and dies by SIGKILL, leaving what SQLite keeps beside it (`SCENARIOS`).
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import StateFileError
from noesium_stream.log.record import Record
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.state_file import sqlite as state_db
from noesium_stream.state_file.claim import discard
from tests.support.events import counted
from tests.support.folding import History, everything, fold_of, folded, record

KEYS, HEAD = 150, 800
SCENARIOS = ("unchecked", "checkpointed", "partly", "restarted")


def records(keys: int, count: int, start: int = 0) -> list[Record]:
    """`count` events over `keys` keys; some remove their row, some cannot be taken."""
    clock = VirtualClock(seed=start)
    numbers = (
        (f"key-{(n * 7) % keys}", 0 if n % 19 == 18 else -n if n % 97 == 96 else n) for n in range(count)
    )
    return [
        record(counted(n, key, clock=clock), offset) for offset, (key, n) in enumerate(numbers, start=start)
    ]


@contextmanager
def workplace(page_bytes: int = 4096) -> Iterator[Path]:
    """A folder in memory where there is one; files made in it have pages of this size."""
    before, state_db.PAGE_BYTES = state_db.PAGE_BYTES, page_bytes
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix="noesium-test-") as folder:
            yield Path(folder)
    finally:
        state_db.PAGE_BYTES = before


class Trial:
    """A state file and its tail; counts what becomes of damaged copies of it.

    Args:
        folder: to work in.
        head: what was folded into the file, from offset 0.
        tail: what comes after it.
        batch: events per commit of the head.
    """

    def __init__(self, folder: Path, head: list[Record], tail: list[Record], batch: int = 50) -> None:
        self.path = folder / "trial.state"
        self.log = head + tail
        self.detected = self.harmless = 0
        self.step = 10
        """Events per commit on the way to the end."""
        source = folder / "source.state"
        fold = fold_of(History(), source)
        for at in range(0, len(head), batch):
            fold.take(head[at : at + batch])
            fold.flush()
        fold.file.close()
        self.data = source.read_bytes()
        self.wal = b""
        self.expected = folded(History(), folder / "straight.state", head + tail)

    def flip(self, bit: int) -> None:
        """One bit of the file is another."""
        data = bytearray(self.data)
        data[bit // 8] ^= 1 << bit % 8
        self.run(bytes(data), self.wal, f"bit {bit}")

    def flip_wal(self, bit: int) -> None:
        """One bit of the write-ahead log is another."""
        wal = bytearray(self.wal)
        wal[bit // 8] ^= 1 << bit % 8
        self.run(self.data, bytes(wal), f"bit {bit} of the -wal")

    def run(self, data: bytes, wal: bytes, what: str) -> None:
        """Nothing but the right state, or a `StateFileError`."""
        discard(self.path)
        self.path.write_bytes(data)
        if wal:
            Path(f"{self.path}-wal").write_bytes(wal)
        try:
            rows = self._caught_up()
        except StateFileError:
            self.detected += 1
            return
        except BaseException as error:
            error.add_note(what)
            raise
        assert rows == self.expected, what
        self.harmless += 1

    def _caught_up(self) -> dict[bytes, bytes]:
        fold = fold_of(History(), self.path)
        try:
            return self._fold_tail(fold)
        finally:
            fold.file.close()

    def _fold_tail(self, fold: PartitionFold[list[int]]) -> dict[bytes, bytes]:
        for at in range(fold.cursor, len(self.log), self.step):
            fold.take(self.log[at : at + self.step])
            fold.flush()
        assert fold.cursor == len(self.log)
        return everything(fold)


def killed(folder: Path, scenario: str) -> None:
    """Fold, and die; what is left lies in FOLDER/source.state and its -wal.

    All of the pages are in the -wal of `unchecked`. In the others a checkpoint came in the middle, so that it
    has the later half alone; another one came before the end, as far as a reader let it (`partly`).
    """
    fold = fold_of(History(), folder / "source.state")
    db = fold.file._db
    db.execute("PRAGMA wal_autocheckpoint = 0")
    reader = None
    head = records(KEYS, HEAD)
    for at in range(0, HEAD, 4):
        fold.take(head[at : at + 4])
        fold.flush()
        if scenario != "unchecked" and at == HEAD // 2:
            assert db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
        if scenario == "partly" and at == HEAD * 3 // 4:
            reader = StateFile.open_to_read(folder / "source.state")
    if scenario in ("checkpointed", "partly"):
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    os.kill(os.getpid(), signal.SIGKILL)
    assert reader


if __name__ == "__main__":
    state_db.PAGE_BYTES = 512
    killed(Path(sys.argv[1]), sys.argv[2])
