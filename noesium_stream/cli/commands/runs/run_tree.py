"""Drawing of a cancelled tree: one line for each run, with how it ended, and what was not stopped."""

from __future__ import annotations

from typing import Final

from rich.text import Text
from rich.tree import Tree

from noesium_stream.cli.drawing import COLORS
from noesium_stream.cli.eventline import SHORT_ID
from noesium_stream.cli.output import shorten
from noesium_stream.cli.tree import NarrowTree, styled, tree_lines
from noesium_stream.client.views.tree_end import TreeEnd, TreeRun

_WIDTH: Final = 100
_MOST: Final = 20


def ends_of(tree: TreeEnd) -> list[str]:
    """Draw the runs as lines."""
    branches: dict[str, Tree] = {}
    for run in tree.runs:
        above = branches.get(run.parent_run_id or "")
        if above is None:
            branches[run.run_id] = NarrowTree(_line(run, run.run_id), guide_style="")
        else:
            branches[run.run_id] = above.add(_line(run, run.run_id[:SHORT_ID]))
    return tree_lines(branches[tree.run_id])


def _line(run: TreeRun, run_id: str) -> Text:
    waits = f"waits for {run.waits_for[0].shown}" if run.waits_for else ""
    parts = (
        styled(run.agent_type, "bold"),
        styled(run_id),
        styled(run.status, COLORS.get(run.status, "")),
        styled(shorten(waits or run.reason or "", _WIDTH)),
    )
    return Text("  ").join(part for part in parts if part)


def unstopped_lines(tree: TreeEnd, kind: str | None = None) -> list[str]:
    """Format what was not stopped, the first of it; `kind` as in `Unstopped`."""
    found = [one for one in tree.unstopped if kind in (None, one.kind)]
    lines = [
        f"{one.agent_type} {one.run_id[:SHORT_ID]}: {shorten(one.what, _WIDTH)}" for one in found[:_MOST]
    ]
    return [*lines, f"and {len(found) - _MOST} more"] if len(found) > _MOST else lines
