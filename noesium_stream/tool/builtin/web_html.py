"""HTML as Markdown; imported by the reading process alone.

What a browser does not show (hidden elements, scripts, comments) is left out, and so is navigation.
"""

from __future__ import annotations

import html
import re
from typing import Any, Final

from html_to_markdown import ConversionOptions, convert

_TITLE: Final = re.compile(r"<title\b[^>]{0,200}>([^<]{0,1000})", re.IGNORECASE)
_HEAD: Final = 200_000
"""Characters in which the title is looked for."""


def read(data: bytes, request: dict[str, Any]) -> dict[str, str]:
    """Title and text of a page in UTF-8; links are resolved against `url` of the request."""
    page = data.decode("utf-8", "replace")
    options = ConversionOptions(
        extract_metadata=False,
        compact_tables=True,
        skip_images=True,
        inline_data_media="alt_text_only",
        hidden_content="drop",
        base_url=request["url"],
    )
    found = _TITLE.search(page[:_HEAD])
    text = (convert(page, options).content or "").strip()
    return {"title": html.unescape(found[1]) if found else "", "text": text}
