"""Parameters of an operation, and how a request writes their values (OpenAPI 3.1, "Style Values")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import orjson

from noesium_stream.errors import ToolInputError
from noesium_stream.tool.openapi.document import ProblemError

STYLES: Final = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
}
"""The styles of each place; the first is the default."""

_BETWEEN: Final = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter.

    Attributes:
        argument: the name that a model gives it by.
        name: the name on the wire.
        place: `path`, `query` or `header`.
        style, explode: how lists and objects are written.
        as_json: whether the value is written as JSON text.
    """

    argument: str
    name: str
    place: str
    style: str
    explode: bool
    as_json: bool = False

    def in_path(self, value: Any) -> str:
        """The text for the place of this parameter in a path.

        Raises:
            ToolInputError: it would lead to another path.
        """
        parts = [text for pair in _pairs(value) for text in pair if text is not None]
        bad = not parts or any(part in ("", ".", "..") for text in parts for part in _segments(text))
        if bad and not self.as_json:
            raise ToolInputError(
                f"{self.argument} cannot be a part of a path.",
                hint="It is empty, or has a part such as `..`.",
            )
        if self.as_json:
            return quote(_json(value), safe="")
        start, between = {"simple": ("", ","), "label": (".", "."), "matrix": (";", ";")}[self.style]
        if self.style == "matrix" and not (self.explode and isinstance(value, list | dict)):
            return f";{quote(self.name, safe='')}={self._joined(value, ',')}"
        if self.style == "matrix" and isinstance(value, list):
            return "".join(f";{quote(self.name, safe='')}={_text(item)}" for item in value)
        return start + self._joined(value, between if self.explode else ",")

    def in_query(self, value: Any) -> list[str]:
        """The encoded pairs `name=value` for a query."""
        name = quote(self.name, safe="")
        if self.as_json:
            return [f"{name}={quote(_json(value), safe='')}"]
        if self.style == "deepObject" and isinstance(value, dict):
            return [f"{name}%5B{quote(key, safe='')}%5D={_text(item)}" for key, item in value.items()]
        if self.explode and isinstance(value, dict):
            return [f"{quote(key, safe='')}={_text(item)}" for key, item in value.items()]
        if self.explode and isinstance(value, list):
            return [f"{name}={_text(item)}" for item in value]
        return [f"{name}={self._joined(value, _BETWEEN.get(self.style, ','))}"]

    def in_header(self, value: Any) -> str:
        """The value of a header.

        Raises:
            ToolInputError: it has characters that no header has.
        """
        text = _json(value) if self.as_json else ",".join(_plain(part) for part in _flat(value, self.explode))
        if not text.isascii() or not text.isprintable():
            raise ToolInputError(f"{self.argument} has characters that no header has.")
        return text

    def _joined(self, value: Any, between: str) -> str:
        if isinstance(value, dict) and self.explode:
            return between.join(f"{quote(key, safe='')}={_text(item)}" for key, item in value.items())
        return between.join(quote(_plain(part), safe="") for part in _flat(value, explode=False))


def style_of(parameter: dict[str, Any]) -> tuple[str, bool]:
    """Style and explode of a parameter in a document.

    Raises:
        ProblemError: there is no such style.
    """
    allowed = STYLES[parameter["in"]]
    style = parameter.get("style", allowed[0])
    if style not in allowed:
        raise ProblemError(f"a parameter has the style {style!r:.40}")
    return style, parameter.get("explode", style == "form") is True


def _pairs(value: Any) -> list[tuple[str | None, str]]:
    if isinstance(value, dict):
        return [(key, _plain(item)) for key, item in value.items()]
    return [(None, _plain(item)) for item in (value if isinstance(value, list) else [value])]


def _flat(value: Any, explode: bool) -> list[Any]:
    if isinstance(value, dict):
        if explode:
            return [f"{key}={_plain(item)}" for key, item in value.items()]
        return [part for pair in value.items() for part in pair]
    return value if isinstance(value, list) else [value]


def _segments(text: str) -> list[str]:
    return text.replace("\\", "/").split("/")


def _text(value: Any) -> str:
    return quote(_plain(value), safe="")


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else _json(value)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
