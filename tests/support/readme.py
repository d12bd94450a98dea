"""The README's snippets, by the name in the comment above each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
OUTPUT = "text"
"""Blocks in this language show what something printed; there is nothing in them to run."""

_FENCE = re.compile(
    r"(?:^<!-- snippet: (?P<name>[^>]+?) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Snippet:
    """A fenced block."""

    name: str | None
    language: str
    body: str


def blocks() -> list[Snippet]:
    """Every fenced block of the README, in order."""
    found = _FENCE.finditer(README.read_text(encoding="utf-8"))
    return [Snippet(match["name"], match["language"], match["body"]) for match in found]


def snippets() -> dict[str, Snippet]:
    """What can be run, by name."""
    return {block.name: block for block in blocks() if block.name is not None}
