"""Tables and trees for people: nothing is cut, and nothing from the log is read as markup."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from noesium_stream.cli.table import table
from noesium_stream.cli.tree import NarrowTree, styled, tree_lines
from noesium_stream.escapes import escaped

HOSTILE = [
    "[bold red]x[/]",
    "[/nothing]",
    ":warning:",
    "\x1b[2J\x1b]0;title\x07",
    "a\r\nb",
    "\ud800",
    "鍵" * 20,
]


def test_columns_line_up_and_no_line_is_cut_or_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    table(("name", "n"), [("鍵", "1"), ("long" * 60, "23")], right=frozenset({1}), below=["why", ""])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{'name':<240}   n"
    assert (lines[2], lines[3]) == ("  why", f"{'long' * 60}  23")
    assert [cell_len(line) for line in (lines[0], lines[1], lines[3])] == [244, 244, 244]


def test_a_table_without_rows_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    table(("a", "bc"), [])
    assert capsys.readouterr().out == "a  bc\n"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_of_the_log_is_shown_as_it_is_and_controls_nothing(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table(("text",), [(text,)], below=[text])
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["text", escaped(text), f"  {escaped(text)}"]
    tree = NarrowTree(styled(text), guide_style="")
    tree.add(styled(text))
    assert tree_lines(tree) == [escaped(text), f"└─ {escaped(text)}"]
    assert "\x1b" not in escaped(text)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5))
def test_any_texts_give_one_line_for_each_branch(texts: list[str]) -> None:
    tree = NarrowTree(Text("root"), guide_style="")
    for text in texts:
        tree.add(Text(f"{escaped(text)}."))
    assert len(tree_lines(tree)) == len(texts) + 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_encoding_of_standard_output_is_a_fault(encoding: str) -> None:
    code = (
        "import click\n"
        "from noesium_stream.cli import app\n"
        "from noesium_stream.cli.output import out_json\n"
        "from noesium_stream.cli.table import table\n"
        "from noesium_stream.cli.tree import NarrowTree, styled, tree_lines\n"
        "@app.cli.command('x')\n"
        "def x():\n"
        "    tree = NarrowTree(styled('wurzel'), guide_style='')\n"
        "    tree.add(styled('größe 鍵'))\n"
        "    table(('a', 'b'), [('größe', '鍵'), *(((line), '') for line in tree_lines(tree))])\n"
        "    out_json({'a': 'größe 鍵'}, lines=True)\n"
        "app.LazyGroup.get_command = lambda self, ctx, name: x\n"
        "app.COMMANDS['x'] = ('x', 'x')\n"
        "raise SystemExit(app.run(['x']))\n"
    )
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env)
    assert done.returncode == 0, done.stderr.decode()
    # click takes a stream of ASCII for one that is set up wrongly, and writes UTF-8
    lines = done.stdout.decode("utf-8" if encoding == "ascii" else encoding).splitlines()
    assert json.loads(lines[-1]) == {"a": "größe 鍵"}
    assert ("└─" in lines[3]) is (encoding == "utf-8")
    assert ("`-" in lines[3]) is (encoding != "utf-8")
