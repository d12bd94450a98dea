"""Questions of runs to people as text: a table of them, and each whole."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from typing import Any, Final

from rich.cells import cell_len

from noesium_stream.cli.eventline import SHORT_ID
from noesium_stream.cli.output import duration, json_text, note
from noesium_stream.cli.table import table
from noesium_stream.client import Approval
from noesium_stream.clock import to_rfc3339
from noesium_stream.escapes import escaped

_ID_WIDTH: Final = 8
_LONGEST_PATH: Final = 8
_BAR: Final = "│ "
"""Before each line of a question that is shown whole: text of a question cannot pass for another row."""
_WIDTH: Final = 160
_NARROWEST: Final = 40
_INDENT: Final = 2


def whole_lines(question: Any) -> list[str]:
    """Format a question with nothing left out: the lines of a text; else JSON, a line for each field.

    Fields of an object in it, as the arguments of a tool, have lines of their own, too.
    """
    return [_BAR + line for line in _lines(question)]


def print_questions(found: Sequence[Approval], now_ms: int, *, whole: bool, on_log: str = "") -> None:
    """Print questions as a table.

    Args:
        found: the questions.
        now_ms: the time, in milliseconds since the epoch.
        whole: show those that the table cuts whole below their rows; else say by which command that is done.
        on_log: option that commands need for this log.
    """
    header = ("run", "id", "agent", "node", "question", "approvers", "age", "deadline")
    table(header, (_row(one, now_ms) for one in found), below=[_below(one, whole) for one in found])
    cut = [] if whole else list(dict.fromkeys(one.run_id for one in found if not one.is_shown_whole))
    if cut:
        what = cut[0] if len(cut) == 1 else "RUN"
        note(f"Questions that are cut here are shown whole by: noesium approvals {what}{on_log}")


def wrapped(line: str, width: int) -> list[str]:
    """Break a line, after spaces where there are any; the parts together are the line, escaped."""
    text = escaped(line)
    limit = width if cell_len(text) == len(text) else width // 2  # at most two columns a character
    return re.findall(rf".{{1,{limit}}}(?:(?<= )|$)|.{{1,{limit}}}", text) or [""]


def _lines(question: Any) -> list[str]:
    if isinstance(question, str):
        return question.split("\n")
    if not isinstance(question, dict) or not question:
        return [json_text(question)]
    lines: list[str] = []
    for name, one in question.items():
        if isinstance(one, dict) and one:
            lines.append(f"{json_text(name)}:")
            lines.extend(f"  {json_text(inner)}: {json_text(of)}" for inner, of in one.items())
        else:
            lines.append(f"{json_text(name)}: {json_text(one)}")
    return lines


def _below(question: Approval, whole: bool) -> list[str]:
    lines = [line for line in (_path(question), _answered(question)) if line]
    if whole and not question.is_shown_whole:
        columns = shutil.get_terminal_size((_WIDTH, 1)).columns
        width = max(_NARROWEST, columns) - _INDENT - len(_BAR)
        for line in _lines(question.question):
            lines.extend(_BAR + part for part in wrapped(line, width))
    return lines


def _row(question: Approval, now_ms: int) -> tuple[str, ...]:
    deadline = ""
    if question.deadline_ms is not None:
        deadline = to_rfc3339(question.deadline_ms)[:19].replace("T", " ")
        if question.deadline_ms <= now_ms:
            deadline += " passed"
    return (
        question.run_id,
        question.approval_id[:_ID_WIDTH],
        question.agent_type,
        question.node,
        question.shown,
        _who(question),
        duration(max(0, now_ms - question.asked_ms)),
        deadline,
    )


def _path(question: Approval) -> str:
    """The runs from the root of its tree to its own, if others have called that."""
    if len(question.path) < 2:
        return ""
    shown = [f"{one.agent_type} {one.run_id[:SHORT_ID]}" for one in question.path]
    if len(shown) > _LONGEST_PATH:
        half = _LONGEST_PATH // 2
        shown = [*shown[:half], "…", *shown[-half:]]
    return " > ".join(shown)


def _who(question: Approval) -> str:
    who = ", ".join(question.approvers) or "anyone"
    return who if question.minimum is None else f"{question.minimum} of {who}"


def _answered(question: Approval) -> str:
    if question.status != "sent":
        return question.needed if question.approved_by else ""
    answered = "approved" if question.approved else "rejected"
    return f"{answered} by {question.answered_by}; no worker has taken that up yet"
