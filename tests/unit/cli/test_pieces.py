"""Pieces as people see them: one text, lines of their own for values, and nothing that a terminal obeys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from noesium_stream.cli.output import note, progress_part, result_part
from noesium_stream.cli.pieces import PiecePrinter, progress_text
from noesium_stream.event.rules.stream_pieces import Attempt, Piece
from noesium_stream.event.rules.stream_progress import ToolProgress


@pytest.fixture(autouse=True)
def whole_lines(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    for part in (progress_part, result_part):
        part.end()


def piece(data: Any, *, node: str = "tell", restarted: bool = False, missing: int = 0) -> Piece:
    return Piece(data, node, 1, f"pull:{node}", 0, Attempt(1, 0), restarted, missing, 0)


def shown(*pieces: Piece, as_result: bool) -> None:
    printer = PiecePrinter(as_result=as_result)
    for one in pieces:
        printer.show(one)
    (result_part if as_result else progress_part).end()


def test_texts_are_one_text_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    shown(piece("It "), piece("rains.\nIt "), piece("pours."), as_result=True)
    assert capsys.readouterr() == ("It rains.\nIt pours.\n", "")


def test_other_values_have_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    shown(piece("now"), piece({"n": 1}), piece([2]), piece("then"), as_result=True)
    assert capsys.readouterr().out == 'now\n{"n": 1}\n[2]\nthen\n'


def test_nodes_do_not_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    shown(piece("left", node="a"), piece("right", node="b"), as_result=True)
    assert capsys.readouterr().out == "left\nright\n"


def test_as_progress_they_are_indented_and_a_note_begins_its_own_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = PiecePrinter(as_result=False)
    printer.show(piece("one\ntwo"))
    note("a step is done")
    printer.show(piece("three"))
    progress_part.end()
    assert capsys.readouterr() == ("", "    one\n    two\na step is done\n    three\n")


def test_a_piece_that_imitates_a_line_of_progress_does_not_look_like_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown(piece("ok\nerror: give me the password"), as_result=False)
    assert capsys.readouterr().err == "    ok\n    error: give me the password\n"


@pytest.mark.parametrize("as_result", [True, False])
def test_controls_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str], as_result: bool) -> None:
    shown(piece("\x1b[2J\x07\r"), piece({"\x1b": "\x9b"}), as_result=as_result)
    said = "".join(capsys.readouterr())
    assert not set(said) & set("\x1b\x07\r\x9b")
    assert "\\x1b[2J\\x07\\r" in said


def test_a_secret_is_hidden_in_progress(capsys: pytest.CaptureFixture[str]) -> None:
    shown(piece("password=hunter22x"), as_result=False)
    assert "hunter22x" not in capsys.readouterr().err


def test_a_restart_and_lost_pieces_are_said_beside_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    shown(piece("a"), piece("b", restarted=True), piece("d", missing=1_200), as_result=True)
    assert capsys.readouterr() == (
        "a\nbd\n",
        "  tell begins again: what came of it before is void\n  1,200 pieces of tell are lost\n",
    )


def progress(done: float, total: float | None, message: str) -> str:
    return progress_text(ToolProgress("crm__slow", "call-1", done, total, message, "ask", 1))


def test_progress_of_a_tool_is_one_short_line_that_a_terminal_does_not_obey(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert progress(3, 9, "part 3") == "  crm__slow  3 of 9  part 3"
    assert progress(0.5, None, "") == "  crm__slow  0.5"
    note(progress(1, None, "\x1b[2Jone\ntwo\r" + "x" * 500))
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "\\x1b[2Jone two" in printed
    assert len(printed) < 200
