"""Edits of a text: one exact match is replaced, and an edit that was made already is recognised. Pure."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from noesium_stream.errors import ToolInputError
from noesium_stream.tool.builtin.files_open import version_of

_SHOWN: Final = 5
_MOST_PLACES: Final = 1_000
_MOST_HASHED: Final = 256 * 2**20
"""Places, and bytes, that are looked at to recognise an edit that was made already."""


class Edited(NamedTuple):
    """A text after an edit. `line`: the first line, from 1, that the edit concerns."""

    data: bytes
    line: int


def edited(data: bytes, old: bytes, new: bytes, version: str) -> Edited:
    """Replace the one place where `old` is by `new`.

    A text that is what this edit has made of that version is returned as it is: a call that is repeated after
    a crash finds its own work.

    Args:
        data: the text, UTF-8.
        old: what is replaced.
        new: what is there then.
        version: of the text that the edit is for (see `version_of`).

    Raises:
        ToolInputError: the text has another version, or `old` is not in it, or more than once.
    """
    if version_of(data) != version:
        at = _place_of_work(data, old, new, version)
        if at is None:
            raise ToolInputError(
                f"The file has not the version {version} (any more).",
                hint="Read it again, and edit what it has now.",
            )
        return Edited(data, _line(data, at))
    places = _places(data, old, _SHOWN + 1)
    if not places:
        crlf = b"\r\n" in data and b"\n" in old and b"\r\n" not in old
        raise ToolInputError(
            "`old` is not in the file.",
            hint="Its lines end with \\r\\n."
            if crlf
            else "Give it exactly as the file has it, with all spaces.",
        )
    if len(places) > 1:
        lines = ", ".join(str(_line(data, at)) for at in places[:_SHOWN])
        raise ToolInputError(
            f"`old` is in the file more than once: in the lines {lines}{', …' if places[_SHOWN:] else ''}.",
            hint="Give more of what stands around the one that is meant.",
        )
    at = places[0]
    return Edited(data[:at] + new + data[at + len(old) :], _line(data, at))


def _place_of_work(data: bytes, old: bytes, new: bytes, version: str) -> int | None:
    """Where this edit was made in a text of that version; None: it was not, or cannot be recognised."""
    most = min(_MOST_PLACES, _MOST_HASHED // (len(data) + len(old) + 1))
    for at in _places(data, new, most) if new else ():
        before = hashlib.sha256(data[:at])
        before.update(old)
        before.update(data[at + len(new) :])
        if before.hexdigest().startswith(version):
            return at
    return None


def _places(data: bytes, text: bytes, most: int) -> list[int]:
    """The first places where a text is; they may overlap."""
    found: list[int] = []
    at = data.find(text)
    while at >= 0 and len(found) < most:
        found.append(at)
        at = data.find(text, at + 1)
    return found


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1
