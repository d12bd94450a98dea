"""Lines of `noesium show --follow`: the steps of a run and of all runs below it, as they happen."""

from __future__ import annotations

import shutil
import sys
from contextlib import aclosing
from typing import Any, Final

from noesium_stream import escapes
from noesium_stream.cli.eventline import SHORT_ID
from noesium_stream.cli.output import dim, duration, out, out_json
from noesium_stream.cli.progress import command_to_read, progress_parts
from noesium_stream.client.views.tree_reader import TreeReader, TreeRecord
from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.event.rules.run_life import ENDINGS

WIDTH: Final = 160
"""Columns of a line where no terminal shows it."""

_DEEPEST: Final = 8
_NARROWEST: Final = 40


async def follow_tree(reader: TreeReader, root_id: str, *, on_log: str, as_json: bool) -> None:
    """Print the steps of a tree until its root has ended; those of its answered runs come before.

    Args:
        reader: of the tree, which has read nothing yet.
        root_id: id of the root.
        on_log: option that commands need for this log.
        as_json: one JSON object a line instead.

    Raises:
        LogUnavailableError, LogTruncatedError
    """
    async with aclosing(reader.read()) as records:
        async for found in records:
            if as_json:
                out_json(_object(found), lines=True)
            else:
                for line in lines_of(found, _width(), on_log):
                    out(line)
            if reader.members[root_id].ended is not None and not any(one.answered for one in reader.open):
                return  # who has not answered may go on; nobody waits for it


def _width() -> int:
    return max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH


def _object(found: TreeRecord) -> dict[str, Any]:
    member = found.member
    return {
        "run_id": member.run_id,
        "agent_type": member.agent_type,
        "parent_run_id": None if member.caller is None else member.caller.run_id,
        "depth": member.depth,
        "event": found.event.to_dict(),
    }


def lines_of(found: TreeRecord, width: int, on_log: str = "") -> list[str]:
    """Format what a record says, if people would wait for it: each line at most so wide, without controls."""
    member = found.member
    try:
        end = _end(found)
        said, commands = (end, []) if end else progress_parts(found.event, member.run_id, on_log)
    except WRONG as error:
        pass_over(found.record, error)
        return []
    if said is None:
        return []
    indent = "  " * min(member.depth, _DEEPEST)
    head = f"{indent}{member.agent_type} {member.run_id[:SHORT_ID]}"
    shown = _cut(f"  {said}", width - len(head))
    if found.event.event_type == "approval.requested" and shown.endswith("…"):
        commands = list(dict.fromkeys((command_to_read(found.event.payload) + on_log, *commands)))
    # A command is for copying: it may take a second line of a narrow terminal.
    return [
        f"{dim(head)}{shown}",
        *(_cut(f"{indent}      {command}", max(width, WIDTH)) for command in commands),
    ]


def _cut(text: str, width: int) -> str:
    """A text on one line, without styles and controls, at most so wide."""
    plain = escapes.line(text, color=False)
    return plain if len(plain) <= width else f"{plain[: max(0, width - 1)]}…"


def _end(found: TreeRecord) -> str | None:
    """Say how a run ends; None: it does not."""
    event, payload = found.event, found.event.payload
    if event.event_type not in ENDINGS or payload["run_id"] != found.member.run_id:
        return None
    status = ENDINGS[event.event_type]
    took = duration(payload["duration_ms"]) if isinstance(payload.get("duration_ms"), int) else ""
    why = payload.get("reason") or payload.get("message") or ""
    return "  ".join(part for part in (status, took, str(why)) if part)
