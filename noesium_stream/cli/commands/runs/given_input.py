"""`--input` of `noesium run`: JSON on the command line, in a file (`@FILE`), or on standard input (`-`).

It is read while the command line is parsed: nothing is open by then, and Ctrl-C ends the process at once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from noesium_stream.event.limits import MAX_RECORD_BYTES

_STANDARD_INPUT: Final = "-"
_FILE: Final = "@"
_OPTION: Final = "--input"
_LONGEST_NAME: Final = 255


class GivenInput(click.ParamType[dict[str, Any]]):
    """A JSON object: the input of a run."""

    name = "input"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Read the text and parse it; raises `click.UsageError`."""
        if isinstance(value, dict):
            return value
        try:
            where, text = _read(str(value))
            return _parsed(where, text)
        except ValueError as error:
            raise click.UsageError(str(error), ctx) from error


def _read(value: str) -> tuple[str, str]:
    """Return where the text is, and the text.

    Raises:
        ValueError: it cannot be read, is too long, or is not UTF-8.
    """
    if value == _STANDARD_INPUT:
        return "standard input", _decoded("standard input", _bounded("standard input", sys.stdin.buffer))
    if not value.startswith(_FILE):
        return _OPTION, value
    path = Path(value.removeprefix(_FILE)).expanduser()
    if not path.name:
        raise ValueError("--input @ names no file: write --input @FILE.json, or - for standard input.")
    try:
        with path.open("rb") as file:
            return str(path), _decoded(str(path), _bounded(str(path), file))
    except OSError as error:
        raise ValueError(f"--input {value}: {path} cannot be read: {error.strerror or error}.") from error


def _bounded(where: str, file: BinaryIO) -> bytes:
    data = file.read(MAX_RECORD_BYTES + 1)
    if len(data) > MAX_RECORD_BYTES:
        raise ValueError(
            f"{where} has more than {MAX_RECORD_BYTES:,} bytes: no run takes an input of this size."
        )
    return data


def _decoded(where: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where} is not UTF-8: byte {error.start + 1:,} cannot be decoded.") from error


def _names_file(where: str, text: str) -> bool:
    """Whether what stands on the command line is the name of a file."""
    return where == _OPTION and 0 < len(text) <= _LONGEST_NAME and Path(text).is_file()


def _parsed(where: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        file = f" The file {text} is read by --input @{text}." if _names_file(where, text) else ""
        raise ValueError(f"{where} is not JSON: {error}.{file}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{where} is no JSON object: the input of a run is one, its graph's first state.")
    return found
