"""Text of an answer: by its type, in its character set, and bounded.

HTML and PDF are read in a process of their own (`web_reader.py`), which has no environment, little memory and
little time: a page that breaks a parser breaks nothing else.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import re
import sys
from dataclasses import dataclass
from typing import Any, Final

from noesium_stream.errors import ToolExecutionError
from noesium_stream.escapes import escaped
from noesium_stream.tool.net.client import Answer

READING_S: Final = 20.0
"""How long the reading of one page may take, in seconds."""
MAX_TITLE: Final = 500

_HTML: Final = ("text/html", "application/xhtml+xml")
_PDF: Final = "application/pdf"
_TEXT: Final = re.compile(r"text/.+|application/(json|xml|javascript|yaml|x-ndjson|.+\+(json|xml|yaml))")
_META: Final = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:-]{1,40})", re.IGNORECASE)
_PARAMETER: Final = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9_:-]{1,40})", re.IGNORECASE)
_CHARSET: Final = re.compile(
    r"utf-8(-sig)?|utf-16(-[lb]e)?|ascii|iso8859-\d+|cp\d{3,4}|koi8-[rtu]|shift_jis|euc_jp|euc_kr|gb\w+|big5\w*"
)
"""Names of codecs, as Python has them, that decode in linear time; `punycode` and `idna` do not."""
_HIDDEN: Final = re.compile("[\0\U000e0000-\U000e007f]")
"""What stores refuse, and the tag characters, which carry text that no person sees."""


@dataclass(frozen=True, slots=True)
class Text:
    """What a page says. `truncated`: it says more than the limit."""

    media_type: str
    title: str
    text: str
    truncated: bool


async def text_of(answer: Answer, limit: int) -> Text:
    """The text of an answer, at most `limit` characters: of HTML as Markdown, of PDF page by page.

    Raises:
        ToolExecutionError: it is no text, or cannot be read in time and memory.
        ConfigError: it is PDF or HTML, and the extra `web` is not installed.
    """
    media_type = answer.media_type or _sniffed(answer.body)
    if media_type == _PDF:
        found = await _read_apart({"kind": "pdf", "limit": limit}, answer.body)
    elif media_type in _HTML:
        page = _decoded(answer).encode("utf-8", "replace")
        found = await _read_apart({"kind": "html", "url": answer.url, "limit": limit}, page)
    elif _TEXT.fullmatch(media_type):
        found = {"title": "", "text": _decoded(answer)}
    else:
        raise ToolExecutionError(
            f"The answer is {escaped(media_type)[:80] or 'binary data'}, which is no text."
        )
    text = _HIDDEN.sub("", str(found["text"]))
    title = " ".join(_HIDDEN.sub("", str(found["title"])).split())[:MAX_TITLE]
    return Text(media_type, title, text[:limit], len(text) > limit)


def _sniffed(body: bytes) -> str:
    start = body[:1_024].lstrip().lower()
    if start.startswith(b"%pdf-"):
        return _PDF
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return _HTML[0]
    return "text/plain" if b"\0" not in body[:4_096] else ""


def _decoded(answer: Answer) -> str:
    body = answer.body
    for mark, name in ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16")):
        if body.startswith(mark):
            return body.decode(name, "replace")
    named = _PARAMETER.search(str(answer.headers.get("content-type", ""))[:500])
    in_page = _META.search(body[:2_048])
    label = named[1] if named else in_page[1].decode("ascii") if in_page else "utf-8"
    try:
        codec = codecs.lookup(label).name
    except (LookupError, ValueError):
        codec = "utf-8"
    return body.decode(codec if _CHARSET.fullmatch(codec) else "utf-8", "replace")


async def _read_apart(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Let a process of its own read HTML or PDF."""
    environment = {name: os.environ[name] for name in ("PYTHONPATH", "SYSTEMROOT") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        # -P: the folder that the worker stands in must not lend its modules to the process
        *(sys.executable, "-P", "-m", "noesium_stream.tool.builtin.web_reader"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    try:
        async with asyncio.timeout(READING_S):
            out, _ = await process.communicate(json.dumps(request).encode() + b"\n" + data)
    except TimeoutError:
        raise ToolExecutionError(f"The page cannot be read in {READING_S:g} s.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _answered(out)


def _answered(out: bytes) -> dict[str, Any]:
    try:
        found = json.loads(out)
    except ValueError:
        raise ToolExecutionError(
            "The page breaks its reader: it needs too much memory, or is damaged."
        ) from None
    if "problem" in found:
        raise ToolExecutionError(f"The page cannot be read: {escaped(str(found['problem']))[:200]}.")
    assert isinstance(found, dict), "the reader answers with an object"
    return found
