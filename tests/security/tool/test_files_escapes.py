"""Nothing leads a tool of `files` out of its workspace, and nothing in a workspace makes one hang."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ToolError, ToolExecutionError, ToolInputError
from noesium_stream.tool import FilesToolkit
from noesium_stream.tool.builtin import files_open, files_search, files_walk
from tests.support.open_files import open_beneath
from tests.support.tool_calls import Calls

SECRET = "s3cret"
VERSION = "0" * 16


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text(SECRET)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("inside\n")
    return folder


@pytest.fixture
def call(workspace: Path) -> Calls:
    return Calls(FilesToolkit(), workspace, "fs:read", "fs:write")


async def every_tool(call: Calls, path: str) -> list[Any]:
    """What each tool answers about a path: a result, or its error."""
    answers: list[Any] = []
    for name, arguments in [
        ("read_file", {"path": path}),
        ("search_files", {"path": path, "pattern": "."}),
        ("find_files", {"path": path, "pattern": "**"}),
        ("edit_file", {"path": path, "old": "s3", "new": "X", "version": VERSION}),
        ("write_file", {"path": path, "text": "overwritten"}),
    ]:
        try:
            answers.append(await call(name, **arguments))
        except ToolError as error:
            answers.append(error)
    return answers


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "a/../../secret.txt",
        "./../secret.txt",
        "a.txt/../../secret.txt",
        "..",
        "/etc/passwd",
        "//etc/passwd",
        "~/x",
        "~root/x",
        "a\0b",
        "a\nb",
        "a\x1b[31mb",
        "a\x9bb",
        "a\u202eb",
        "a\ud800b",
        "..\x00/secret.txt",
    ],
)
async def test_no_path_leads_out(call: Calls, workspace: Path, path: str) -> None:
    for answer in await every_tool(call, path):
        assert isinstance(answer, ToolInputError), answer
        assert answer.message.isprintable()
    assert (workspace.parent / "secret.txt").read_text() == SECRET
    assert os.listdir(workspace) == ["a.txt"]


LINKS = {
    "to a file": "../secret.txt",
    "absolute": "/etc/passwd",
    "to a folder": "..",
    "to /proc": "/proc/self/root",
    "to an open folder": "/proc/self/cwd",
    "to nothing": "../new.txt",
    "within": "a.txt",
    "to itself": "link",
}


@pytest.mark.parametrize("target", LINKS.values(), ids=LINKS)
async def test_no_link_is_followed(call: Calls, workspace: Path, target: str) -> None:
    (workspace / "link").symlink_to(target)
    before = sorted(os.listdir(workspace.parent))
    for path in ("link", "link/secret.txt", "link/etc/passwd", "link/work/a.txt"):
        for answer in await every_tool(call, path):
            assert isinstance(answer, ToolExecutionError), answer
    found = await call("find_files", pattern="**")
    assert [one["path"] for one in found["files"]] == ["a.txt"]
    assert found["skipped"] == 1
    assert (await call("search_files", pattern="."))["files"] == 1
    assert sorted(os.listdir(workspace.parent)) == before
    assert (workspace.parent / "secret.txt").read_text() == SECRET
    assert (workspace / "a.txt").read_text() == "inside\n"


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Swap two names again and again, each time in one step of the kernel."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            assert libc.renameat2(-100, names[0], -100, names[1], 2) == 0  # AT_FDCWD, RENAME_EXCHANGE

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


async def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(call: Calls, workspace: Path) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "f.txt").write_text(SECRET)
    (workspace / "d").mkdir()
    (workspace / "d" / "f.txt").write_text("inside")
    (workspace / "other").symlink_to(outside)
    answers: list[Any] = []
    with swapping(workspace / "d", workspace / "other"):
        for _ in range(150):
            answers += await every_tool(call, "d/f.txt")
            answers += [await call("search_files", pattern="."), await call("find_files", pattern="**")]
            answers += await every_tool(call, "d")
    assert SECRET not in str(answers)
    assert (outside / "f.txt").read_text() == SECRET
    assert os.listdir(outside) == ["f.txt"]
    kinds = {isinstance(answer, dict) for answer in answers}
    assert kinds == {True, False}, "the swaps were not seen both ways"


async def test_a_file_that_is_swapped_for_a_link_leads_nowhere(call: Calls, workspace: Path) -> None:
    (workspace / "other").symlink_to("../secret.txt")
    answers: list[Any] = []
    with swapping(workspace / "a.txt", workspace / "other"):
        for _ in range(200):
            for name, arguments in [("read_file", {"path": "a.txt"}), ("search_files", {"pattern": "."})]:
                try:
                    answers.append(await call(name, **arguments))
                except ToolExecutionError as error:
                    answers.append(error)
    assert SECRET not in str(answers)
    assert {isinstance(answer, dict) for answer in answers} == {True, False}


async def test_a_second_name_of_a_file_outside_is_not_read_and_not_written(
    call: Calls, workspace: Path
) -> None:
    os.link(workspace.parent / "secret.txt", workspace / "hard.txt")
    with pytest.raises(ToolExecutionError, match="second name"):
        await call("read_file", path="hard.txt")
    assert (await call("search_files", pattern="s3"))["matches"] == []
    await call("write_file", path="hard.txt", text="overwritten")
    assert (workspace / "hard.txt").read_text() == "overwritten"
    assert (workspace.parent / "secret.txt").read_text() == SECRET


async def test_an_operator_can_allow_second_names(workspace: Path) -> None:
    os.link(workspace / "a.txt", workspace / "b.txt")
    call = Calls(FilesToolkit(hard_links=True), workspace, "fs:read")
    assert (await call("read_file", path="b.txt"))["text"] == "inside\n"


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def _zero(path: Path) -> None:
    try:
        os.mknod(path, 0o20666, os.makedev(1, 5))
    except OSError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize("make", [_fifo, _socket, _zero])
async def test_what_is_no_file_is_not_opened(
    workspace: Path, tmp_path_factory: pytest.TempPathFactory, make: Any
) -> None:
    call = Calls(FilesToolkit(), workspace, "fs:read", "fs:write")
    make(workspace / "special")
    for answer in await every_tool(call, "special"):
        assert isinstance(answer, ToolExecutionError), answer
    assert (await call("search_files", pattern="."))["files"] == 1
    assert [one["path"] for one in (await call("find_files", pattern="**"))["files"]] == ["a.txt"]
    assert not (workspace / "special").is_file()


async def test_a_huge_file_costs_little(call: Calls, workspace: Path) -> None:
    with open(workspace / "huge", "wb") as file:
        file.write(b"text\n")
        file.truncate(1 << 40)
    with pytest.raises(ToolExecutionError, match="no text"):
        await call("read_file", path="huge")
    with pytest.raises(ToolExecutionError):
        await call("edit_file", path="huge", old="text", new="x", version=VERSION)
    found = await call("search_files", pattern="text")
    assert (found["matches"], found["skipped"]) == ([], 1)
    sizes = {one["path"]: one["size"] for one in (await call("find_files", pattern="**"))["files"]}
    assert sizes["huge"] == 1 << 40
    await call("write_file", path="huge", text="small")
    assert (workspace / "huge").stat().st_size == 5


async def test_names_that_would_command_a_terminal_are_not_shown(call: Calls, workspace: Path) -> None:
    for name in ("a\nb", "\x1b[2Jc", "d\u202ee", "f\x9bg"):
        (workspace / name).write_text("x")
        (workspace / f"{name}.d").mkdir()
        (workspace / f"{name}.d" / "inner").write_text("x")
    os.close(os.open(os.fsencode(workspace) + b"/\xff\xfe", os.O_CREAT))
    for answer in (await call("find_files", pattern="**"), await call("search_files", pattern="x")):
        assert "inner" not in str(answer)
        assert answer["skipped"] == 9
    assert [one["path"] for one in (await call("find_files", pattern="**"))["files"]] == ["a.txt"]


async def test_a_name_made_of_wildcards_is_only_itself(workspace: Path) -> None:
    (workspace / "*").write_text("star")
    (workspace / "docs").mkdir()
    (workspace / "docs" / "x").write_text("x")
    call = Calls(FilesToolkit(), workspace, "fs:read:a*", "fs:read:docs/**")
    for path in ("*", "?.txt", "**", "[a].txt"):
        for answer in await every_tool(call, path):
            assert isinstance(answer, ToolError), answer
    whole = Calls(FilesToolkit(), workspace, "fs:read")
    assert (await whole("read_file", path="*"))["text"] == "star"


async def test_a_deep_and_a_wide_folder_end_a_walk(
    call: Calls, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace
    for _ in range(60):
        folder = folder / "d"
        folder.mkdir()
    assert (await call("find_files", pattern="**"))["cut"]
    assert open_beneath(workspace.parent) == []
    monkeypatch.setattr(files_walk, "MAX_ENTRIES", 10)
    for number in range(20):
        (workspace / f"{number}.txt").write_text("x")
    found = await call("find_files", pattern="**")
    assert len(found["files"]) in (9, 10)  # the folder may be among the first ten
    assert found["cut"]


@pytest.mark.parametrize("path", ["x" * 300, "x" * 1_000, "x" * 5_000, "x/" * 600 + "x"])
async def test_a_name_that_is_too_long_is_refused(call: Calls, workspace: Path, path: str) -> None:
    with pytest.raises(ToolError) as refused:
        await call("write_file", path=path, text="x")
    assert len(str(refused.value)) < 1_200
    assert os.listdir(workspace) == ["a.txt"]
    await call("write_file", path="x/" * 490 + "x", text="x")
    assert (await call("read_file", path="x/" * 490 + "x"))["text"] == "x"


EXPRESSIONS = ["(a+)+$", "(a|a)*$", "(?:a?){40}a{40}$", "(.*)(.*)(.*)(.*)(.*)x", "(?:a|b)*a(?:a|b){400}c"]


@pytest.mark.parametrize("pattern", EXPRESSIONS)
async def test_no_expression_makes_a_search_hang(
    call: Calls, workspace: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    (workspace / "a.txt").write_text(("a" * 50_000 + "b\n") * 20)
    looked: list[int] = []
    matches = files_search.Expression._matches

    def counted(self: files_search.Expression, piece: bytes) -> Iterator[int]:
        looked.append(len(piece))
        return matches(self, piece)

    monkeypatch.setattr(files_search.Expression, "_matches", counted)
    monkeypatch.setattr(files_walk, "WALK_S", 0.0)
    found = await call("search_files", pattern=pattern)
    assert found["cut"]
    assert len(looked) == 1, "there is a look at the clock behind each piece"
    assert max(looked) <= 64 * 1024


async def test_a_lock_that_somebody_holds_is_not_waited_for_forever(
    call: Calls, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_open, "_LOCK_S", 0.05)
    folder = os.open(workspace, os.O_RDONLY)
    try:
        files_open.fcntl.flock(folder, files_open.fcntl.LOCK_EX)
        with pytest.raises(ToolExecutionError, match="was locked"):
            await call("write_file", path="a.txt", text="x")
    finally:
        os.close(folder)
    assert (workspace / "a.txt").read_text() == "inside\n"


async def test_no_call_leaves_a_file_open(call: Calls, workspace: Path) -> None:
    (workspace / "link").symlink_to("..")
    for path in ("a.txt", "link", "link/x", "new", "no/such/file", "a.txt/b"):
        await every_tool(call, path)
    await call("find_files", pattern="**", most=1)
    await call("search_files", pattern=".", most=1)
    assert open_beneath(workspace.parent) == []
