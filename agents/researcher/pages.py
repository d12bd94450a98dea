"""Web pages that a question names: their addresses, and the passages in them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from agents.documents.parsing import parsed
from agents.librarian.index import CorpusIndex, FileEntry

MAX_PAGES: Final = 3
MAX_ADDRESS: Final = 800

_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'“”`]+", re.IGNORECASE)
_EMPTY: Final = re.compile(r"\([\s,;]*\)|\[[\s,;]*\]")
_AFTER: Final = ".,;:!?)]}"
_MARKDOWN: Final = frozenset({"text/html", "application/xhtml+xml", "text/markdown"})


def addresses_in(question: str) -> list[str]:
    """The addresses in a question, each once, `MAX_PAGES` at most."""
    found = (match.rstrip(_AFTER) for match in _ADDRESS.findall(question))
    return [one for one in dict.fromkeys(found) if len(one) <= MAX_ADDRESS][:MAX_PAGES]


def without_addresses(question: str) -> str:
    """The question without the addresses in it, and without brackets that then hold nothing."""
    left = _ADDRESS.sub(lambda match: match[0][len(match[0].rstrip(_AFTER)) :], question)
    return " ".join(_EMPTY.sub("", left).split())


def found_on_page(
    address: str, title: str, content_type: str, text: str, queries: Sequence[str], limit: int
) -> list[dict[str, Any]]:
    """The counts of words and the passages of a page for each query, by the librarian's search.

    Passages have no lines: those of a page's text are not those of the page.
    """
    form = "markdown" if content_type in _MARKDOWN else "text"
    page = parsed(text.encode("utf-8", "replace"), address, form)
    if "reason" in page:
        return [{"counts": {}, "passages": []} for _ in queries]
    with tempfile.TemporaryDirectory(prefix="noesium-page-") as folder:
        index = CorpusIndex(Path(folder) / "page.db")
        index.prepare(Path(folder))
        index.write([FileEntry(address, len(text), 0, "", title or page["title"], passages=page["passages"])])
        found = [index.search(query, limit) for query in queries]
    return [
        {
            "counts": one["counts"],
            "passages": [{**passage, "start_line": None, "end_line": None} for passage in one["passages"]],
        }
        for one in found
    ]
