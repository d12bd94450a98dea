"""Trees for people, drawn by rich.

Texts come from the log: they are never read as rich's markup, and control characters in them are shown as
escapes. A tree is wrapped only at a terminal's width: in a pipe each branch is one line.
"""

from __future__ import annotations

import shutil
import sys
from io import StringIO
from typing import Final

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.text import Text
from rich.tree import Tree

from noesium_stream.cli.output import wants_color
from noesium_stream.escapes import escaped, own_styles

_UNBOUNDED: Final = 1_000_000


class NarrowTree(Tree):
    """A tree whose branches are indented by three columns."""

    ASCII_GUIDES = ("   ", "|  ", "+- ", "`- ")
    TREE_GUIDES = [("   ", "│  ", "├─ ", "└─ ")] * 3


class _Screen(Console):
    """A console that writes into memory, for the encoding of standard output."""

    @property
    def encoding(self) -> str:
        return (sys.stdout.encoding or "utf-8").lower()


def styled(text: str, style: str = "") -> Text:
    """Style a text from the log, without reading markup in it."""
    return Text(escaped(text), style)


def tree_lines(tree: Tree) -> list[str]:
    """Draw a tree as lines, with colours if a terminal shows them."""
    color = wants_color()
    screen = _Screen(
        file=StringIO(),
        width=shutil.get_terminal_size().columns if sys.stdout.isatty() else _UNBOUNDED,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    drawn = screen.render_lines(tree, screen.options, pad=False)
    return ["".join(_painted(segment, color) for segment in line).rstrip() for line in drawn]


def _painted(segment: Segment, color: bool) -> str:
    text = escaped(segment.text)
    if not color or segment.style is None:
        return text
    return own_styles(segment.style.render(text, color_system=ColorSystem.STANDARD))
