"""Pages that are enemies of their reader: they end in a result or an error, and in nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

import pytest

from noesium_stream.errors import ToolError, ToolExecutionError
from noesium_stream.tool.builtin import web_text
from tests.support.pdf import make_bomb
from tests.support.sites import Site, answer
from tests.support.web_tools import fetch

HTML = "text/html; charset=utf-8"


@pytest.mark.parametrize(
    "page",
    [
        "<div>" * 200_000 + "x",
        "<table><tr><td>" * 20_000,
        "<p>" + "<b><i>" * 100_000,
        "<ul><li>" * 30_000,
        "<a " + " ".join(f"a{number}=1" for number in range(100_000)) + ">",
        "<title>" + "x" * 2_000_000,
        "<" * 1_000_000,
        "&#0;&#xD800;&#x110000;&" * 100_000,
        "<!--" * 500_000,
        "<a href='" + "x" * 1_000_000,
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1") * 1_000,
    ],
    ids=lambda page: page[:12],
)
async def test_hostile_html_is_read_or_refused(page: str) -> None:
    async with Site({"/": answer(page, content_type=HTML)}) as site:
        with contextlib.suppress(ToolError):
            found = await fetch(site)
            assert len(found["text"]) <= 200_000
            assert len(found["title"]) <= 500
            json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "document",
    [b"%PDF-", b"%PDF-1.7\n" + b"<<" * 100_000, make_bomb(200_000_000), b"%PDF-1.4\ntrailer<</Root 1 0 R>>"],
    ids=["empty", "deep", "bomb", "no objects"],
)
async def test_hostile_pdf_is_read_or_refused(document: bytes) -> None:
    async with Site({"/": answer(document, content_type="application/pdf")}) as site:
        with contextlib.suppress(ToolError):
            assert len((await fetch(site))["text"]) <= 200_000


async def test_a_page_that_takes_too_long_is_given_up_and_its_reader_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []
    start = web_text.asyncio.create_subprocess_exec

    async def recorded(*arguments: str, **settings: object) -> object:
        stuck = (arguments[0], "-c", "import time; time.sleep(600)")
        started.append(await start(*stuck, **settings))  # type: ignore[arg-type]
        return started[-1]

    monkeypatch.setattr(web_text.asyncio, "create_subprocess_exec", recorded)
    monkeypatch.setattr(web_text, "READING_S", 0.1)
    async with Site({"/": answer("<p>x", content_type=HTML)}) as site:
        with pytest.raises(ToolExecutionError, match="cannot be read in"):
            await fetch(site)
    (process,) = started
    assert process.returncode == -9


def test_the_reader_has_little_memory() -> None:
    code = (
        "import sys; from noesium_stream.tool.builtin import web_reader as r; r.answer_to = lambda *a: "
        "{'text': 'x' * (2 * r.MEMORY_BYTES)}; r.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=b'{"kind": "html"}\n',
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout == b""
    assert b"MemoryError" in done.stderr


async def test_the_reader_has_nothing_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    start = web_text.asyncio.create_subprocess_exec

    async def recorded(*arguments: str, **settings: object) -> object:
        seen.append(settings["env"])  # type: ignore[arg-type]
        return await start(*arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setenv("API_KEY", "hidden")
    monkeypatch.setattr(web_text.asyncio, "create_subprocess_exec", recorded)
    async with Site({"/": answer("<p>x", content_type=HTML)}) as site:
        assert (await fetch(site))["text"] == "x"
    assert len(os.environ) > 1
    assert set(seen[0]) <= {"PYTHONPATH", "SYSTEMROOT"}
