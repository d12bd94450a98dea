"""`tool/beneath.py`: what lies beneath a folder is opened without following a link."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from noesium_stream.tool.beneath import open_beneath
from tests.support import open_files


def opened(root: Path, *parts: str, make: bool = False) -> str:
    folder = os.open(root, os.O_RDONLY)
    try:
        found = open_beneath(folder, parts, make=make)
        try:
            return os.readlink(f"/proc/self/fd/{found}")
        finally:
            os.close(found)
    finally:
        os.close(folder)


def test_a_path_is_opened_part_by_part(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "f").write_text("x")
    assert opened(tmp_path) == str(tmp_path)
    assert opened(tmp_path, "a", "b") == str(tmp_path / "a" / "b")
    assert opened(tmp_path, "a", "f") == str(tmp_path / "a" / "f")
    assert opened(tmp_path, "x", "y", make=True) == str(tmp_path / "x" / "y")


@pytest.mark.parametrize("parts", [("link",), ("link", "b"), ("a", "up"), ("a", "up", "x")])
@pytest.mark.parametrize("make", [False, True])
def test_a_link_is_named_and_not_followed(tmp_path: Path, parts: tuple[str, ...], make: bool) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "a" / "up").symlink_to("..")
    with pytest.raises(OSError, match="symbolic links") as refused:
        opened(tmp_path, *parts, make=make)
    assert refused.value.errno == errno.ELOOP
    assert refused.value.filename in ("link", "up")
    assert open_files.open_beneath(tmp_path) == []


@pytest.mark.parametrize("part", ["..", ".", "", "a/b", "/etc"])
def test_a_part_is_one_name(tmp_path: Path, part: str) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        opened(tmp_path, part)
