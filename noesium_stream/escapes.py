"""Escapes for text that goes to a terminal: what comes from a record, a file or a URL is shown, never obeyed.

Every line is escaped where it is printed (`cli.output`), so that no command can forget it. The styles of this
package have to survive that, and text must not be able to imitate them: each carries a number that only this
process knows.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

_INVISIBLE: Final = (
    "\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
)
_HIDDEN: Final = (
    rf"[\x00-\x1f\x7f-\x9f\u2028\u2029{_INVISIBLE}\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
    # Joiners shape scripts and emojis; beside anything else they only hide differences.
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)
"""Controls (C0, C1), directions of writing, what has no width, lone surrogates."""
_SECRET: Final = secrets.randbelow(9 * 10**15) + 10**15
_STYLE: Final = re.compile(rf"\x1b\[{_SECRET};([0-9;]*)m")
_TEXT: Final = re.compile(_HIDDEN)
_TABBED: Final = re.compile(f"(?!\t)(?:{_HIDDEN})")


def escaped(text: str) -> str:
    """A text on one line, with everything that a terminal would obey or hide as an escape."""
    return _TEXT.sub(_escape, text)


def escaped_json(text: str) -> str:
    """JSON text with the same characters in strings as JSON's own escapes."""
    return re.sub(rf"(?![\n])(?:{_HIDDEN})", _json_escape, text)


def styled(text: str, *codes: int) -> str:
    """Style a text by SGR codes, so that `line` knows it as a style of this process."""
    return f"\x1b[{_SECRET};{';'.join(map(str, codes))}m{text}\x1b[{_SECRET};0m"


def own_styles(text: str) -> str:
    """Turn the SGR codes of a text that this process drew, from escaped parts, into those of `styled`."""
    return re.sub("\x1b\\[([0-9;]*)m", f"\x1b[{_SECRET};\\1m", text)


def line(text: str, *, color: bool) -> str:
    """Make a line for a terminal: styles of this process in colours or removed, all else escaped.

    Tabs stay.
    """
    parts = _STYLE.split(text)  # text, codes, text, codes, ..., text
    for number, part in enumerate(parts):
        if number % 2 == 0:
            parts[number] = _TABBED.sub(_escape, part)
        else:
            parts[number] = f"\x1b[{part}m" if color else ""
    return "".join(parts)


def lines(text: str, *, color: bool, indent: str = "") -> str:
    """Make several lines for a terminal; those after the first are indented, unless they are already."""
    first, *more = text.replace("\r\n", "\n").split("\n")
    made = [line(first, color=color)]
    for one in more:
        made.append(line(one if one.startswith(indent or " ") or not one else indent + one, color=color))
    return "\n".join(made)


def _escape(found: re.Match[str]) -> str:
    return ascii(found.group())[1:-1]


def _json_escape(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
