"""Which files are documents, and why the others are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agents.documents.listing import Reason, checked_root, corpus_id, format_of, list_documents
from noesium_stream.errors import ConfigError
from tests.support.corpora import write_files


def reasons(root: Path) -> dict[str, Reason]:
    return {item.path: item.reason for item in list_documents(root).skipped}


def found(root: Path) -> list[str]:
    return [item.path for item in list_documents(root).found]


def test_documents_of_all_formats_are_found_in_order(tmp_path: Path) -> None:
    names = ["b.md", "a/z.rst", "a/c.txt", "d.html", "e.py", "f.pdf", "README", "LICENSE", "g.adoc", "h.1"]
    write_files(tmp_path, dict.fromkeys(names, "text"))
    assert found(tmp_path) == sorted(names)


def test_pages_of_manuals_are_found_also_when_they_are_compressed() -> None:
    assert {
        name: format_of(name)
        for name in ("ls.1", "LS.8.GZ", "a.3.gz", "a.txt.gz", "a.tar.gz", "a.9", "gz.gz")
    } == {
        "ls.1": "man",
        "LS.8.GZ": "man",
        "a.3.gz": "man",
        "a.txt.gz": None,
        "a.tar.gz": None,
        "a.9": None,
        "gz.gz": None,
    }


def test_asciidoc_is_known_by_its_names() -> None:
    assert format_of("a.adoc") == format_of("a.asciidoc") == "asciidoc"


def test_folders_of_tools_and_hidden_ones_are_left_out(tmp_path: Path) -> None:
    for folder in (".git", "node_modules", "__pycache__", ".noesium", "x.egg-info", "build", ".venv"):
        write_files(tmp_path, {f"{folder}/a.md": "text"})
    write_files(tmp_path, {"mine/pyvenv.cfg": "", "mine/a.md": "text", ".hidden.md": "text", "a.md": "text"})
    assert found(tmp_path) == ["a.md"]
    assert "node_modules/" in list_documents(tmp_path).folders


def test_the_home_is_left_out_wherever_it_is(tmp_path: Path) -> None:
    write_files(tmp_path, {"home/corpora/a.txt": "text", "a.txt": "text"})
    assert [item.path for item in list_documents(tmp_path, leave_out=[tmp_path / "home"]).found] == ["a.txt"]


def test_a_file_of_a_gigabyte_is_skipped_by_its_size_alone(tmp_path: Path) -> None:
    with open(tmp_path / "big.txt", "wb") as file:
        file.truncate(1024**3)
    [item] = list_documents(tmp_path).skipped
    assert item.path == "big.txt"
    assert item.reason is Reason.TOO_LARGE
    assert "1,024 MB" in item.detail


def test_binary_files_and_other_formats_are_told_apart(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.bin": b"\0\1\2", "b.json": "{}", "c": b"\x7fELF\0"})
    assert reasons(tmp_path) == {"a.bin": Reason.BINARY, "b.json": Reason.OTHER, "c": Reason.BINARY}


def test_links_are_not_followed_so_loops_end_and_nothing_outside_is_read(tmp_path: Path) -> None:
    outside = write_files(tmp_path / "outside", {"secret.md": "text"})
    root = write_files(tmp_path / "root", {"a.md": "text"})
    (root / "loop").symlink_to(root)
    (root / "b.md").symlink_to(outside / "secret.md")
    (root / "out").symlink_to(outside)
    assert found(root) == ["a.md"]
    assert reasons(root) == {"b.md": Reason.LINK, "loop": Reason.LINK, "out": Reason.LINK}


def test_pipes_are_no_files_and_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    assert reasons(tmp_path) == {"pipe.txt": Reason.NOT_A_FILE}


def test_a_name_that_is_no_utf8_is_named_readably(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "w") as file:
        file.write("text")
    [item] = list_documents(tmp_path).skipped
    assert item.reason is Reason.UNREADABLE
    assert item.path == "caf?.txt"


def test_a_folder_that_does_not_exist_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no folder .*nowhere"):
        checked_root(tmp_path / "nowhere")


def test_a_file_instead_of_a_folder_is_one_clear_error(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.md": "text"})
    with pytest.raises(ConfigError, match=r"a\.md is a file, not a folder") as caught:
        checked_root(tmp_path / "a.md")
    assert str(tmp_path) in str(caught.value.hint)


def test_a_corpus_has_one_id_per_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "My Docs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert corpus_id(Path("My Docs")) == corpus_id(tmp_path / "My Docs" / ".." / "My Docs")
    assert corpus_id(Path("My Docs")) != corpus_id(tmp_path)
    assert corpus_id(Path("My Docs")).startswith("my-docs-")
