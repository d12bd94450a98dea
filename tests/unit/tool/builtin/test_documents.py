"""`tool/builtin/documents.py`: a folder of documents is searched and read through the librarian's index."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ConfigError, ToolInputError
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.tool import DocumentsToolkit
from noesium_stream.tool.content.set_aside import LIMIT_BYTES
from noesium_stream.tool.context import Mode
from noesium_stream.tool.judge import ToolRules, judge
from noesium_stream.tool.toolkit import TOOLKITS
from noesium_stream.tool.verdict import Allowed, Denied
from tests.support.pdf import make_pdf
from tests.support.tool_calls import Calls

LEAVE = """# Leave

Employees have thirty days of leave in a year.

## Sick leave

Tell your manager at once.
"""


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "leave.md").write_text(LEAVE)
    (folder / "travel.pdf").write_bytes(make_pdf([["Trains are booked by the office."]], title="Travel"))
    (tmp_path / "secret.md").write_text("# Secret\n\nThe password is s3cret.\n")
    (folder / "link.md").symlink_to("../secret.md")
    return folder


@pytest.fixture
async def call(docs: Path, tmp_path: Path) -> AsyncIterator[Calls]:
    toolkit = DocumentsToolkit(docs=docs, home=tmp_path / "home", refresh_s=0)
    await toolkit.start()
    yield Calls(toolkit, tmp_path, "documents:read")
    await toolkit.stop()


async def test_passages_are_found_with_their_place(call: Calls) -> None:
    first, *_ = await call("search_documents", query="How many days of leave do employees have?")
    assert {name: first[name] for name in ("path", "title", "heading", "first_line", "page")} == {
        "path": "leave.md",
        "title": "Leave",
        "heading": "Leave",
        "first_line": 3,
        "page": None,
    }
    assert "thirty days" in first["text"]
    [found] = await call("search_documents", query="Who books trains?", most=1)
    assert (found["path"], found["page"]) == ("travel.pdf", 1)


async def test_a_document_is_read_passage_by_passage(call: Calls, docs: Path) -> None:
    found = await call("read_document", path="leave.md")
    assert [one["heading"] for one in found["passages"]] == ["Leave", "Leave > Sick leave"]
    assert (found["title"], found["next"]) == ("Leave", None)
    (docs / "long.md").write_text("".join(f"## Part {at}\n\n{'word ' * 150}\n\n" for at in range(300)))
    await call("search_documents", query="word")  # looks for changed documents
    numbers, first = [], 0
    while first is not None:
        found = await call("read_document", path="long.md", first=first)
        assert len(canonical_json(found)) <= LIMIT_BYTES
        numbers += [one["number"] for one in found["passages"]]
        first = found["next"]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 300


@pytest.mark.parametrize(
    "path",
    ["../secret.md", "link.md", "/etc/passwd", "leave.md/", "", "a\0b", "' OR 1=1 --", "x" * 5_000, "\ud800"],
)
async def test_only_a_document_of_the_index_is_read(call: Calls, path: str) -> None:
    with pytest.raises(ToolInputError):
        await call("read_document", path=path)


@pytest.mark.parametrize(
    "query", ["s3cret password", '"', "NEAR(a b)", "a* OR b", "\x1b[2J", "x" * 1_000, "-"]
)
async def test_no_query_finds_what_lies_outside(call: Calls, query: str) -> None:
    assert "s3cret" not in str(await call("search_documents", query=query))
    with pytest.raises(ToolInputError):
        await call("search_documents", query="  ")


async def test_changed_documents_are_seen_and_a_damaged_index_is_made_anew(
    call: Calls, docs: Path, tmp_path: Path
) -> None:
    (docs / "new.md").write_text("# Parking\n\nBicycles stand in the yard.\n")
    (docs / "leave.md").unlink()
    found = await call("search_documents", query="bicycles leave")
    assert {one["path"] for one in found} == {"new.md", "travel.pdf"}
    [index] = (tmp_path / "home" / "corpora").glob("*.db")
    size = index.stat().st_size
    with open(index, "r+b") as file:
        file.write(os.urandom(size))
    assert (await call("search_documents", query="bicycles", most=1))[0]["path"] == "new.md"


async def test_a_folder_without_documents_is_refused_when_the_worker_starts(tmp_path: Path) -> None:
    for docs in (tmp_path / "nothing", tmp_path):
        with pytest.raises(ConfigError, match="The toolkit documents") as refused:
            await DocumentsToolkit(docs=docs, home=tmp_path / "home").start()
        assert refused.value.hint == "Name the folder in DocumentsToolkit(docs=…)."


def test_its_tools_need_the_permission_of_their_folder() -> None:
    assert TOOLKITS.get("documents") is DocumentsToolkit
    tools = DocumentsToolkit(docs=Path("."), name="handbook").tools()
    assert [one.name for one in tools] == ["read_handbook", "search_handbook"]
    assert {one.labels for one in tools} == {("document",)}
    arguments: dict[str, Any] = {"path": "a", "query": "a"}
    for one in tools:
        granted = judge(one, arguments, ToolRules("clerk", Mode.ASK, ("documents:read:handbook",)))
        other = judge(one, arguments, ToolRules("clerk", Mode.AUTO, ("documents:read:documents", "fs:read")))
        assert isinstance(granted, Allowed)
        assert isinstance(other, Denied)
