"""Contents by hash: written once, verified on every read, never outside the store."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from noesium_stream.errors import ConfigError, ToolExecutionError, ToolInputError
from noesium_stream.tool.content import store as module
from noesium_stream.tool.content.store import ContentStore


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_bytes_come_back_by_their_hash(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "contents")
    ref = store.put(b"tea and milk", "text/plain")
    assert ref.as_json() == {
        "hash": hashlib.sha256(b"tea and milk").hexdigest(),
        "size": 12,
        "media_type": "text/plain",
    }
    assert store.get(ref) == store.get(ref.hash) == b"tea and milk"
    assert store.get(ref, 4, 3) == b"and"
    assert store.get(ref, 100) == b""


def test_the_same_bytes_are_written_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "contents")
    ref = store.put(b"tea")
    [file] = files(tmp_path)
    before = file.stat()
    assert store.put(b"tea") == ref
    assert files(tmp_path) == [file]
    assert file.stat().st_ino == before.st_ino
    assert before.st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "\n", "/" + "a" * 63]
)
def test_what_is_no_hash_is_never_looked_up(tmp_path: Path, name: str) -> None:
    with pytest.raises(ToolInputError, match="no hash of a content"):
        ContentStore(tmp_path).get(name)


def test_an_unknown_hash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolInputError, match="There is no content"):
        ContentStore(tmp_path).get("a" * 64)


def test_a_changed_content_is_refused_and_repaired_by_the_next_put(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    ref = store.put(b"tea")
    [file] = files(tmp_path)
    file.write_bytes(b"pea")
    with pytest.raises(ToolExecutionError, match="was changed in its store"):
        store.get(ref)
    store.put(b"tea")
    assert store.get(ref) == b"tea"


def test_a_link_and_a_pipe_in_the_store_are_not_followed(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "contents")
    ref = store.put(b"tea")
    [file] = files(tmp_path)
    outside = tmp_path / "outside"
    outside.write_bytes(b"tea")
    file.unlink()
    file.symlink_to(outside)
    with pytest.raises(ToolExecutionError, match="cannot be read"):
        store.get(ref)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ToolExecutionError, match="was changed"):
        store.get(ref)


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONTENT", 10)
    with pytest.raises(ToolExecutionError, match="11 bytes is too large"):
        ContentStore(tmp_path).put(b"x" * 11)


def test_a_store_that_cannot_be_written_says_so_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ToolExecutionError, match=r"The content store .*file/contents cannot be"):
        ContentStore(tmp_path / "file" / "contents").put(b"tea")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk_leaves_no_part_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    opened = os.open

    def open_full(path: object, flags: int, *more: int) -> int:
        number = opened(path, flags, *more)  # type: ignore[call-overload]
        if str(path).endswith(".part"):
            os.dup2(full, number)
        return int(number)

    monkeypatch.setattr(os, "open", open_full)
    try:
        with pytest.raises(ToolExecutionError, match="No space left"):
            ContentStore(tmp_path).put(b"tea")
    finally:
        os.close(full)
    assert files(tmp_path) == []


def test_a_url_is_opened_through_fsspec() -> None:
    store = ContentStore("memory://contents")
    ref = store.put(b"tea")
    assert store.get(ref, 1) == b"ea"
    with pytest.raises(ToolInputError, match="There is no content"):
        store.get("a" * 64)


def test_a_url_of_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="nonsense://somewhere cannot be opened"):
        ContentStore("nonsense://somewhere").put(b"tea")
