"""PDF as text, page by page; imported by the reading process alone."""

from __future__ import annotations

import io
from typing import Any, Final

from pypdf import PdfReader

MAX_PAGES: Final = 2_000


def read(data: bytes, request: dict[str, Any]) -> dict[str, str]:
    """Title and text of a document, or the `problem` with it; ends with the page that exceeds the limit."""
    reader = PdfReader(io.BytesIO(data), strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        return {"problem": "it is locked with a password"}
    title = str((reader.metadata and reader.metadata.title) or "")
    pages: list[str] = []
    size = 0
    for page in reader.pages[:MAX_PAGES]:
        pages.append(page.extract_text().strip())
        size += len(pages[-1])
        if size > request["limit"]:
            break
    return {"title": title, "text": "\n\n".join(pages)}
