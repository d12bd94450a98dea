"""Files that another process reads: all of them, in order, and without a lock lost."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from noesium_stream.client.erasure import file_reader, file_reader_process
from noesium_stream.client.erasure.file_reader import FileReader
from noesium_stream.client.erasure.scan import Needles, Scanned, scan_files
from noesium_stream.errors import ErasureError

_TRY = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def is_locked(path: Path) -> bool:
    """Whether another process is refused the lock of a file."""
    tried = subprocess.run([sys.executable, "-c", _TRY, str(path)], capture_output=True)
    assert tried.returncode == 0 or b"BlockingIOError" in tried.stderr
    return tried.returncode != 0


def test_a_lock_of_this_process_outlives_a_search_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    path.write_bytes(b"said in confidence")
    with path.open("r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        scanned = Scanned()
        scan_files([path], Needles(["in confidence"]), scanned)
        assert [found.place for found in scanned.found] == [str(path)]
        assert is_locked(path)
    assert not is_locked(path)


def test_files_of_any_name_and_size_come_whole(tmp_path: Path) -> None:
    names = [b"plain", "Grüße\n\u2028".encode(), b"\xff\xfe not UTF-8"]
    sizes = [0, 1, 2 * file_reader_process.PIECE + 3]
    with FileReader() as reader:
        for name, size in zip(names, sizes, strict=True):
            path, data = tmp_path / os.fsdecode(name), os.urandom(size)
            path.write_bytes(data)
            pieces = list(reader.pieces(path))
            assert b"".join(pieces) == data
            assert len(pieces) == -(-size // file_reader_process.PIECE)


def test_a_file_that_is_not_there_stops_no_other_and_one_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_bytes(b"12345")
    with FileReader() as reader:
        for path, number in ((tmp_path / "gone", errno.ENOENT), (tmp_path, errno.EISDIR)):
            with pytest.raises(OSError, match=os.strerror(number)) as told:
                list(reader.pieces(path))
            assert told.value.errno == number
        assert list(reader.pieces(there)) == [b"12345"]
    scanned = Scanned()
    scan_files([tmp_path / "gone", there], Needles(["234"]), scanned)
    assert (scanned.files, scanned.file_bytes, len(scanned.found)) == (1, 5, 1)
    with pytest.raises(ErasureError, match="cannot be searched: Is a directory"):
        scan_files([tmp_path], Needles(["234"]), scanned)


def test_an_interrupt_is_for_the_one_who_asks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    with FileReader() as reader:
        assert list(reader.pieces(path)) == [b"12345"]  # it has begun
        os.kill(reader._process.pid, signal.SIGINT)
        assert list(reader.pieces(path)) == [b"12345"]


def test_a_reader_that_ends_too_early_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = tmp_path / "half.py"
    half.write_text(
        "import sys; sys.stdin.buffer.read(1); sys.stdout.buffer.write((5).to_bytes(8, 'big') + b'123')"
    )
    monkeypatch.setattr(file_reader, "_PROGRAM", half)
    with pytest.raises(ErasureError, match="the process that reads it ended with 0"):
        scan_files([tmp_path / "any"], Needles(["234"]), Scanned())
