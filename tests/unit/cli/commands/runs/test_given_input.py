"""`--input`: JSON itself, a file, or standard input; all else is one clear line."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import click
import pytest

from noesium_stream.cli.commands.runs.given_input import GivenInput
from noesium_stream.event.limits import MAX_RECORD_BYTES


def given(text: str) -> object:
    return GivenInput().convert(text, None, None)


def stand_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Let standard input have these bytes."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))


def test_an_input_is_given_in_three_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"city": "Zürich"}'
    (tmp_path / "first.json").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    stand_in(monkeypatch, text.encode())
    assert given(text) == given("@first.json") == given("-") == {"city": "Zürich"}


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "first.json").write_bytes(b"\xef\xbb\xbf{}")
    assert given(f"@{tmp_path / 'first.json'}") == {}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not JSON: Expecting value"),
        (b"{", "is not JSON: Expecting property name"),
        (b"[" * 1_000_000, "is not JSON: maximum recursion depth"),
        (b"[1]", "is no JSON object"),
        (b'{"a": "\xff"}', "is not UTF-8: byte 8 cannot be decoded"),
        (b" " * (MAX_RECORD_BYTES + 1), "has more than 16,777,216 bytes"),
    ],
    ids=["empty", "cut", "deep", "list", "latin-1", "large"],
)
def test_what_is_no_input_says_where_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, said: str
) -> None:
    path = tmp_path / "first.json"
    path.write_bytes(data)
    with pytest.raises(click.UsageError) as refused:
        given(f"@{path}")
    assert refused.value.message.startswith(f"{path} {said}")
    stand_in(monkeypatch, data)
    with pytest.raises(click.UsageError) as refused:
        given("-")
    assert refused.value.message.startswith(f"standard input {said}")


@pytest.mark.parametrize(("text", "is_file"), [("in.json", True), ("no.json", False), ("x" * 999, False)])
def test_the_name_of_a_file_without_its_mark_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_file: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.json").write_text("{}")
    with pytest.raises(click.UsageError) as refused:
        given(text)
    assert refused.value.message.endswith("The file in.json is read by --input @in.json.") is is_file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@nobody.json", "--input @nobody.json: nobody.json cannot be read: No such file or directory."),
        ("@.", "--input @ names no file"),
        ("@", "--input @ names no file"),
        ("@folder", "--input @folder: folder cannot be read: Is a directory."),
        ("nonsense", "--input is not JSON: Expecting value"),
        ("[1]", "--input is no JSON object"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(click.UsageError) as refused:
        given(text)
    assert refused.value.message.startswith(said)
