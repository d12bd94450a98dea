"""Passages as `corpus.search` gives them, made by hand."""

from __future__ import annotations

from typing import Any


def unit(text: str, line: int = 1, kind: str = "prose", group: int = 0, **more: Any) -> dict[str, Any]:
    """A unit on one line, or on as many as `text` has; `coverage` and `closeness` are 0 by default."""
    return {
        "kind": kind,
        "text": text,
        "first": line,
        "last": line + text.count("\n"),
        "group": group,
        "coverage": 0.0,
        "closeness": 0.0,
        **more,
    }


def passage(
    *units: dict[str, Any] | str, path: str = "a.md", coverage: float = 1.0, **more: Any
) -> dict[str, Any]:
    """A passage of `units`; a text is a unit on a line and in a group of its own, and covers as much."""
    made = [
        unit(one, number, group=number, coverage=coverage) if isinstance(one, str) else one
        for number, one in enumerate(units, 1)
    ]
    text = "\n".join(one["text"] for one in made)
    return {
        "passage_id": f"{path}:{text}",
        "path": path,
        "title": "",
        "heading": "",
        "start_line": made[0]["first"],
        "end_line": made[-1]["last"],
        "page": None,
        "text": text,
        "score": 1.0,
        "coverage": coverage,
        "units": made,
        **more,
    }
