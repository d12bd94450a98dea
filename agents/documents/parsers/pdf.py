"""PDF: the text of each page, through pypdf.

A page's running header and footer are left out. A document that is slow to read is read as far as the
time goes and says so.
"""

from __future__ import annotations

import io
import re
from collections import Counter

from pypdf import PdfReader
from pypdf.errors import PyPdfError

from agents.documents.blocks import Block, DamagedError, Document
from noesium_stream.clock import Clock, SystemClock

MAX_PAGES = 5_000
MAX_CHARACTERS = 20_000_000
READ_TIME_S = 15.0

_HYPHEN = re.compile(r"(\w)[-\u00ad\u2010]\n(?=[a-zà-ÿ])")
# pypdf lets whatever a broken structure provokes escape; each is the file's fault
_BROKEN = (
    PyPdfError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    NotImplementedError,
    AssertionError,
    OSError,
)
_ENDS = (".", "!", "?", ":", ";", "…", "”")


def parse(data: bytes, path: str, clock: Clock | None = None) -> Document:
    """Blocks of each page; the title is the document's own, else the first line.

    Raises:
        DamagedError: it is no PDF, is encrypted, or is broken beyond reading.
    """
    clock = clock or SystemClock()
    if b"%PDF-" not in data[:1024]:
        raise DamagedError("it is not a PDF, whatever its name says")
    try:
        reader = PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise DamagedError("it is locked with a password")
        title = str((reader.metadata and reader.metadata.title) or "").strip()
        pages, note = _pages(reader, clock)
    except DamagedError:
        raise
    except _BROKEN as error:
        raise DamagedError(f"its structure is broken ({type(error).__name__})") from error
    except RecursionError as error:
        raise DamagedError("its structure refers to itself") from error
    return _document(pages, title or path, note)


def _pages(reader: PdfReader, clock: Clock) -> tuple[list[str], str]:
    started = clock.monotonic()
    texts: list[str] = []
    size = 0
    count = len(reader.pages)
    for number, page in enumerate(reader.pages):
        if number >= MAX_PAGES or size > MAX_CHARACTERS or clock.monotonic() - started > READ_TIME_S:
            return texts, f"only the first {number} of {count} pages were read"
        text = page.extract_text()
        size += len(text)
        texts.append(_HYPHEN.sub(r"\1", text.replace("\0", " ")))
    return texts, ""


def _document(pages: list[str], title: str, note: str) -> Document:
    lines = [[line.strip() for line in page.split("\n") if line.strip()] for page in pages]
    running = _running_lines(lines)
    document = Document(title, note=note)
    for number, page in enumerate(lines, 1):
        kept = [line for line in page if _shape(line) not in running]
        for paragraph in _paragraphs(kept):
            document.blocks.append(Block(paragraph, 0, 0, (), page=number))
    return document


def _running_lines(pages: list[list[str]]) -> frozenset[str]:
    """Shapes of first and last lines that return on most pages: headers, footers, page numbers."""
    if len(pages) < 3:
        return frozenset()
    counts = Counter(shape for page in pages for shape in {_shape(line) for line in (*page[:2], *page[-2:])})
    return frozenset(shape for shape, count in counts.items() if count >= max(3, len(pages) * 0.6))


def _shape(line: str) -> str:
    return re.sub(r"\d+", "#", line)


def _paragraphs(lines: list[str]) -> list[list[str]]:
    """Join lines to paragraphs: a line that ends a sentence and is short ends its paragraph."""
    width = max((len(line) for line in lines), default=0)
    result: list[list[str]] = []
    current: list[str] = []
    for line in lines:
        current.append(line)
        if line.endswith(_ENDS) and len(line) < width * 0.85:
            result.append(current)
            current = []
    return [*result, current] if current else result
