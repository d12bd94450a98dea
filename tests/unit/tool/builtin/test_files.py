"""`tool/builtin/files.py`: files of a workspace are read, written, edited, searched and found."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from noesium_stream.errors import ConfigError, ToolExecutionError, ToolInputError, ToolPermissionError
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool import FilesToolkit
from noesium_stream.tool.builtin.files_open import version_of
from noesium_stream.tool.content.set_aside import LIMIT_BYTES
from noesium_stream.tool.context import Mode
from noesium_stream.tool.judge import ToolRules, judge
from noesium_stream.tool.toolkit import TOOLKITS
from noesium_stream.tool.verdict import Allowed, Denied
from tests.support.tool_calls import Calls

TEXT = "one\ntwo\nthree\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "src" / "b.py").write_text("import os\n\n\ndef two() -> None: ...\n")
    (tmp_path / "src" / "deep" / "c.py").write_text("TWO = 2\n")
    return tmp_path


@pytest.fixture
def call(folder: Path) -> Calls:
    return Calls(FilesToolkit(), folder, "fs:read", "fs:write")


async def test_a_file_is_read_with_its_version(call: Calls) -> None:
    found = await call("read_file", path="a.txt")
    assert found == {
        "path": "a.txt",
        "text": TEXT,
        "lines": 3,
        "size": len(TEXT),
        "version": version_of(TEXT.encode()),
        "next": None,
    }


async def test_some_lines_are_read_and_the_result_says_where_to_go_on(call: Calls) -> None:
    found = await call("read_file", path="./a.txt", line=2, lines=1)
    assert (found["text"], found["next"]) == ("two\n", {"line": 3, "column": 1})
    with pytest.raises(ToolInputError, match="no line 9"):
        await call("read_file", path="a.txt", line=9)
    with pytest.raises(ToolInputError, match="no column"):
        await call("read_file", path="a.txt", line=3, column=99)


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "zeile ü\n" * 20_000, '"\\\x01' * 30_000, "a\n" * 3 + "ü" * 50_000]
)
async def test_a_long_text_is_read_whole_piece_by_piece(folder: Path, call: Calls, text: str) -> None:
    (folder / "long").write_text(text)
    parts, place = [], {"line": 1, "column": 1}
    while place is not None:
        found = await call("read_file", path="long", **place)
        assert len(canonical_json(found)) <= LIMIT_BYTES  # or it were set aside
        assert found["text"]
        parts.append(found["text"])
        place = found["next"]
    assert "".join(parts) == text


async def test_only_the_first_bytes_of_a_huge_file_are_read(folder: Path) -> None:
    (folder / "big").write_text("ü" * 600)
    small = Calls(FilesToolkit(max_bytes=1_001), folder, "fs:read")
    found = await small("read_file", path="big")
    assert (found["text"], found["version"], found["size"]) == ("ü" * 500, None, 1_200)


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0\0", "text".encode("utf-16"), b"caf\xe9"])
async def test_what_is_no_text_is_refused(folder: Path, call: Calls, data: bytes) -> None:
    (folder / "binary").write_bytes(data)
    with pytest.raises(ToolExecutionError, match="no text in UTF-8"):
        await call("read_file", path="binary")
    with pytest.raises(ToolExecutionError, match="no text in UTF-8"):
        await call("edit_file", path="binary", old="a", new="b", version=version_of(data))


async def test_a_file_is_written_with_the_folders_that_are_missing(folder: Path, call: Calls) -> None:
    done = await call("write_file", path="reports/june/a.md", text="größe")
    assert (folder / "reports" / "june" / "a.md").read_text() == "größe"
    assert (done["size"], done["version"]) == (7, version_of("größe".encode()))
    assert await call("write_file", path="reports/june/a.md", text="größe") == done
    assert os.listdir(folder / "reports" / "june") == ["a.md"]


async def test_a_written_file_keeps_its_permission_bits(folder: Path, call: Calls) -> None:
    (folder / "a.txt").chmod(0o754)
    await call("write_file", path="a.txt", text="new")
    assert stat.S_IMODE((folder / "a.txt").stat().st_mode) == 0o754


async def test_a_file_with_another_version_is_not_replaced(folder: Path, call: Calls) -> None:
    version = (await call("read_file", path="a.txt"))["version"]
    await call("write_file", path="a.txt", text="mine", version=version)
    assert (await call("write_file", path="a.txt", text="mine", version=version))["size"] == 4  # repeated
    for path in ("a.txt", "new.txt"):
        with pytest.raises(ToolInputError, match="has not the version"):
            await call("write_file", path=path, text="other", version=version)
    assert (folder / "a.txt").read_text() == "mine"


async def test_a_failed_write_leaves_the_file_and_nothing_beside_it(
    folder: Path, call: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolExecutionError, match="cannot be written: there is no room"):
        await call("write_file", path="a.txt", text="new")
    assert (folder / "a.txt").read_text() == TEXT
    assert sorted(os.listdir(folder)) == ["a.txt", "src"]


async def test_the_one_match_is_replaced(folder: Path, call: Calls) -> None:
    version = (await call("read_file", path="a.txt"))["version"]
    done = await call("edit_file", path="a.txt", old="two", new="zwei", version=version)
    assert (folder / "a.txt").read_text() == "one\nzwei\nthree\n"
    assert (done["line"], done["version"]) == (2, (await call("read_file", path="a.txt"))["version"])


async def test_an_edit_that_is_made_again_changes_nothing(folder: Path, call: Calls) -> None:
    version = (await call("read_file", path="a.txt"))["version"]
    edit = {"path": "a.txt", "old": "two", "new": "two two", "version": version}
    first = await call("edit_file", **edit)
    before = (folder / "a.txt").stat()
    assert await call("edit_file", **edit) == first
    assert (folder / "a.txt").stat().st_ino == before.st_ino
    assert (folder / "a.txt").read_text() == "one\ntwo two\nthree\n"


async def test_an_edit_of_a_file_that_has_changed_is_refused(folder: Path, call: Calls) -> None:
    version = (await call("read_file", path="a.txt"))["version"]
    (folder / "a.txt").write_text(TEXT + "more\n")
    with pytest.raises(ToolInputError, match="has not the version"):
        await call("edit_file", path="a.txt", old="two", new="zwei", version=version)
    with pytest.raises(ToolExecutionError, match="is not there"):
        await call("edit_file", path="b.txt", old="two", new="zwei", version=version)
    with pytest.raises(ToolInputError, match="same"):
        await call("edit_file", path="a.txt", old="two", new="two", version=version)


def test_edits_at_the_same_time_lose_nothing(folder: Path, call: Calls) -> None:
    (folder / "n").write_text("".join(f"{name}0.\n" for name in "abcd"))
    toolkit, start = FilesToolkit(), threading.Barrier(4)

    def count(name: str) -> None:
        start.wait()
        at = 0
        while at < 20:
            version = str(toolkit.read_file("n", call.context)["version"])
            try:
                toolkit.edit_file("n", f"{name}{at}.", f"{name}{at + 1}.", version, call.context)
            except ToolInputError as error:
                if "has not the version" not in error.message:
                    raise
                continue  # somebody was faster
            at += 1

    threads = [threading.Thread(target=count, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (folder / "n").read_text() == "a20.\nb20.\nc20.\nd20.\n"


async def test_lines_are_found_by_an_expression(call: Calls) -> None:
    found = await call("search_files", pattern=r"^.*\btwo\b")
    assert found["matches"] == [
        {"path": "a.txt", "line": 2, "column": 1, "text": "two"},
        {"path": "src/b.py", "line": 4, "column": 1, "text": "def two() -> None: ..."},
    ]
    assert (found["files"], found["skipped"], found["cut"]) == (3, 0, False)
    found = await call("search_files", pattern="two", glob="**/*.py", ignore_case=True)
    assert [one["path"] for one in found["matches"]] == ["src/b.py", "src/deep/c.py"]
    found = await call("search_files", pattern="two", path="src/deep", glob="*.py", ignore_case=True)
    assert [one["path"] for one in found["matches"]] == ["src/deep/c.py"]
    found = await call("search_files", pattern="$", path="a.txt")
    assert [one["line"] for one in found["matches"]] == [1, 2, 3]


async def test_columns_count_characters_and_long_lines_are_cut(folder: Path, call: Calls) -> None:
    (folder / "a.txt").write_text(f"{'ü' * 1_000}needle{'ä' * 1_000}\n")
    [found] = (await call("search_files", pattern="needle", path="a.txt"))["matches"]
    assert found["column"] == 1_001
    assert found["text"].startswith("…ü")
    assert found["text"].endswith("ä…")
    assert len(found["text"]) < 500


async def test_a_search_ends_at_its_bounds_and_says_so(folder: Path, call: Calls) -> None:
    (folder / "many").write_text("needle and a lot of hay\n" * 5_000)
    found = await call("search_files", pattern="needle", most=7)
    assert (len(found["matches"]), found["cut"]) == (7, True)
    (folder / "many").write_text(f"needle {'x' * 390}\n" * 500)
    found = await call("search_files", pattern="needle", most=200)
    assert found["cut"]
    assert len(canonical_json(found)) <= LIMIT_BYTES


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)", "a{1000}{1000}", "x{1000}y{1000}z{1000}"])
async def test_an_expression_that_cannot_be_used_is_refused(call: Calls, pattern: str) -> None:
    with pytest.raises(ToolInputError, match="The expression"):
        await call("search_files", pattern=pattern)


async def test_files_are_found_by_a_glob(folder: Path, call: Calls) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    assert [one["path"] for one in (await call("find_files", pattern="**"))["files"]] == [
        "a.txt",
        "src/b.py",
        "src/deep/c.py",
    ]
    assert (await call("find_files", pattern="*.txt"))["files"] == [{"path": "a.txt", "size": len(TEXT)}]
    found = await call("find_files", pattern="*.py", path="src")
    assert [one["path"] for one in found["files"]] == ["src/b.py"]
    assert (await call("find_files", pattern="*", path=".git"))["files"] == [
        {"path": ".git/config", "size": 1}
    ]
    assert (await call("find_files", pattern="**", most=1))["cut"]
    for pattern in ("../*", "/etc/*", "a**"):
        with pytest.raises(ToolInputError, match="is no pattern"):
            await call("find_files", pattern=pattern)


async def test_a_call_sees_only_what_it_was_granted(folder: Path) -> None:
    call = Calls(FilesToolkit(), folder, "fs:read:src", "fs:read:src/*", "fs:write:out/**")
    assert (await call("find_files", pattern="**", path="src"))["files"] == [{"path": "src/b.py", "size": 35}]
    found = await call("search_files", pattern=".", path="src")
    assert {one["path"] for one in found["matches"]} == {"src/b.py"}
    for name, arguments in [
        ("read_file", {"path": "a.txt"}),
        ("read_file", {"path": "src/deep/c.py"}),
        ("search_files", {"pattern": "."}),
        ("find_files", {"pattern": "**"}),
        ("write_file", {"path": "src/b.py", "text": "x"}),
        ("edit_file", {"path": "src/b.py", "old": "os", "new": "sys", "version": "0" * 16}),
    ]:
        with pytest.raises(ToolPermissionError, match="not what the call was granted"):
            await call(name, **arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "grant"),
    [
        ("read_file", {"path": "a"}, "fs:read:a"),
        ("find_files", {"path": "src", "pattern": "*"}, "fs:read:src/**"),
        ("search_files", {"pattern": "x"}, "fs:read"),
    ],
)
def test_modes_that_only_read_allow_what_only_reads(name: str, arguments: dict[str, str], grant: str) -> None:
    tools = {one.name: one for one in FilesToolkit().tools()}
    rules = ToolRules("clerk", Mode.ASK, (grant, "fs:write"))
    assert isinstance(judge(tools[name], arguments, rules), Allowed)
    for writing in ("write_file", "edit_file"):
        denied = judge(tools[writing], {"path": "a"}, rules)
        assert isinstance(denied, Denied)
        assert denied.kind == "mode"


def test_its_tools_say_what_they_are() -> None:
    assert TOOLKITS.get("files") is FilesToolkit
    tools = {one.name: one for one in FilesToolkit().tools()}
    classes = {name: one.side_effect_class for name, one in tools.items()}
    assert classes == {
        "read_file": SideEffectClass.PURE,
        "search_files": SideEffectClass.PURE,
        "find_files": SideEffectClass.PURE,
        "write_file": SideEffectClass.IDEMPOTENT,
        "edit_file": SideEffectClass.IDEMPOTENT,
    }
    assert {name for name, one in tools.items() if one.labels == ("file",)} == {
        "read_file",
        "search_files",
        "find_files",
    }
    with pytest.raises(ConfigError, match="max_bytes"):
        FilesToolkit(max_bytes=0)


def test_a_workspace_that_is_missing_is_made(tmp_path: Path) -> None:
    FilesToolkit().prepare(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="cannot be made"):
        FilesToolkit().prepare(tmp_path / "file" / "b")
