"""DOCX: paragraphs, lists and tables under their headings, through python-docx (the extra `docx`)."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any, Final

import docx
from docx.opc.exceptions import OpcError
from docx.table import Table
from docx.text.paragraph import Paragraph

from agents.documents.blocks import Block, BlockKind, DamagedError, Document

MAX_UNPACKED: Final = 100 * 1024 * 1024
_HEADING: Final = re.compile(r"(?:Heading|Überschrift) (\d)|Title")
_BROKEN: Final = (OpcError, zipfile.BadZipFile, KeyError, ValueError, AttributeError, SyntaxError, OSError)


def parse(data: bytes, path: str) -> Document:
    """Blocks with their heading paths; the title is the document's own, else the first heading.

    Raises:
        DamagedError: it is no DOCX file, is broken, or unpacks to too much.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(item.file_size for item in archive.infolist()) > MAX_UNPACKED:
                raise DamagedError("it unpacks to too much")
        document = docx.Document(io.BytesIO(data))
        blocks = list(_blocks(document))
        title = str(document.core_properties.title or "").strip()
    except _BROKEN as error:
        raise DamagedError(f"its structure is broken ({type(error).__name__})") from error
    headings = (block.headings[0] for block in blocks if block.headings)
    return Document(title or next(headings, path), blocks)


def _blocks(document: Any) -> list[Block]:
    blocks: list[Block] = []
    path: list[tuple[int, str]] = []
    for part in document.iter_inner_content():
        headings = tuple(text for _, text in path)
        if isinstance(part, Table):
            rows = [" | ".join(" ".join(cell.text.split()) for cell in row.cells) for row in part.rows]
            blocks.append(Block(rows, 0, 0, headings, kind="table", at=(0,) * len(rows)))
        elif isinstance(part, Paragraph) and part.text.strip():
            text = " ".join(part.text.split())
            style = str(part.style.name if part.style is not None else "")
            if heading := _HEADING.match(style):
                level = int(heading[1] or 0)
                path = [*(one for one in path if one[0] < level), (level, text)]
            else:
                kind: BlockKind = "item" if style.startswith("List") else "prose"
                blocks.append(Block([text], 0, 0, headings, kind=kind))
    return blocks
