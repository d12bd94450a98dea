from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.text import Text

import noesium_stream.cli
from noesium_stream import escapes
from noesium_stream.cli.output import (
    LogFormatter,
    bold,
    dim,
    json_text,
    note,
    out,
    out_json,
    out_lines,
    say_error,
)
from noesium_stream.cli.table import table
from noesium_stream.cli.tree import NarrowTree, styled, tree_lines

HIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
HOSTILE = [
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[31merror:",
    "\x9b2J",
    "\r\x1b[K$ rm",
    "a\u202egpj.exe",
    "\u2066a\u2069",
    "pay\u200bpal",
    "admin\u200d",
    "\ufeffx\U000e0041",
    "one\nerror: two",
    "\ud800",
]
TEXTS = st.one_of(
    st.text(), st.lists(st.sampled_from([*HOSTILE, "a", " ", "\t", "\n", "1;2m", "\x1b["])).map("".join)
)


@given(TEXTS)
@example("\x1b[1;2m")
def test_no_text_reaches_a_terminal_raw(text: str) -> None:
    assert not HIDDEN.search(escapes.escaped(text))
    assert "\n" not in escapes.escaped(text)
    assert not HIDDEN.search(escapes.line(text, color=False).replace("\t", ""))
    assert "\n" not in escapes.line(text, color=False)
    shown = escapes.lines(text, color=True, indent="  ")
    assert not HIDDEN.search(shown.replace("\t", ""))
    assert all(not line or line.startswith("  ") for line in shown.split("\n")[1:])
    drawn = "".join(tree_lines(NarrowTree(Text(text))))
    assert not HIDDEN.search(drawn)


@given(TEXTS)
def test_json_stays_json_and_hides_nothing(text: str) -> None:
    made = json_text({text: [text]}, indent=2)
    assert not HIDDEN.search(made)
    assert json.loads(made) == {text: [text]}


@given(TEXTS)
def test_styles_are_the_programs_own(text: str) -> None:
    colored = escapes.line(f"{dim(text)}{bold('b')}", color=True)
    assert re.fullmatch(r"\x1b\[2m[^\x1b]*\x1b\[0m\x1b\[1mb\x1b\[0m", colored)
    assert "\x1b" not in escapes.line(f"{dim(text)}", color=False)
    assert escapes.line(click.style("x", fg="red"), color=True) == "\\x1b[31mx\\x1b[0m"


def test_a_tree_has_colours_of_its_own_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noesium_stream.cli.tree.wants_color", lambda: True)
    (line,) = tree_lines(NarrowTree(styled("a\x1b[2J", "red")))
    assert escapes.line(line, color=True) == "\x1b[31ma\\x1b[2J\x1b[0m"
    (line,) = tree_lines(NarrowTree(Text("b\x1b[2J")))
    assert escapes.line(line, color=True) == "b\\x1b[2J"


def test_joiners_stay_where_they_shape_something() -> None:
    family = "\U0001f468\u200d\U0001f469 \u0645\u06cc\u200c\u062e"
    assert escapes.escaped(family) == family


def _table(text: str) -> None:
    table([text, "b"], [[text, text]], below=[text])


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("say", [out, out_lines, out_json, note, say_error, _table])
def test_whatever_is_printed_is_escaped(
    capsys: pytest.CaptureFixture[str], say: Callable[[str], None], text: str
) -> None:
    say(text)
    told = capsys.readouterr()
    assert not HIDDEN.search(told.out + told.err)
    assert "\nerror: two" not in told.err


def test_hints_and_log_lines_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say_error("a", "".join(HOSTILE[:-1]))
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "%s", ("\x1b[2J\nerror: two",), None)
    told = capsys.readouterr().err + LogFormatter("%(message)s").format(record)
    assert not HIDDEN.search(told)
    assert "\nerror:" not in told


_PRINTS = {"echo", "secho", "print", "pprint", "print_exception", "print_exc"}
_MAY = {"output.py": {"echo"}}


def test_nothing_in_the_command_line_prints_past_its_edge() -> None:
    folder = Path(noesium_stream.cli.__file__).parent
    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            into = ast.unparse(node.func)
            raw = name in _PRINTS or into in ("sys.stdout.write", "sys.stderr.write", "click.style")
            if raw and name not in _MAY.get(path.name, set()):
                found.append(f"{path.relative_to(folder)}:{node.lineno}: {into}")
    assert found == []
