"""Guides of the package: Markdown files in `noesium_stream/guides`."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

GUIDES: Final = (
    "agent",
    "capability",
    "tour",
    "tool",
    "builtin",
    "langchain",
    "permission",
    "skill",
    "sandbox",
    "subagent",
    "chat",
    "memory",
    "goals",
    "models",
    "web",
    "schedule",
    "mcp",
    "projection",
    "operate",
    "a2a",
    "answers",
    "analyst",
    "test",
    "upgrade",
    "secure",
    "guarantees",
    "commands",
    "settings",
    "inside",
    "compare",
    "changes",
    "contribute",
)
"""Names of the guides, in the order in which they are listed."""

API: Final = "api"
API_SUMMARY: Final = "Every public name with its signature, from the docstrings of the installed package."
"""The guide that is no file: see `api_reference`."""

_SNIPPET_MARK: Final = re.compile(r"^<!-- snippet: [^>]+ -->\n", re.MULTILINE)


def guide_text(name: str) -> str:
    """Return a guide as Markdown, without the comments that name its snippets for the tests."""
    text = files("noesium_stream").joinpath("guides", f"{name}.md").read_text(encoding="utf-8")
    return _SNIPPET_MARK.sub("", text)


def summary(name: str) -> str:
    """Return the line below a guide's title: what the guide is for."""
    return guide_text(name).split("\n\n")[1]
