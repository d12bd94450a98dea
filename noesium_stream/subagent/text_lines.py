"""Programs that speak no protocol: how a request becomes lines of theirs, and how their answer is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from string import Formatter
from typing import Any, Final, Literal, NamedTuple, get_args

import orjson

from noesium_stream.errors import CapabilityInputError, ConfigError, SubagentProtocolError
from noesium_stream.subagent.lifecycle import Answer, Request
from noesium_stream.subagent.protocol import MAX_ERROR, Dialogue, Protocol, excerpt, parsed, shown

_Form = Literal["text", "json", "number"]
_ID: Final = "request_id"
_UNSAFE: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")
"""What may end a line, or means something to a terminal or a program: tabs may stay."""
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?\d{1,15}", re.ASCII)
_JUDGED: Final = 2_000
"""Characters of an answer that `error` is matched with."""


class _Part(NamedTuple):
    """A text, and the field of the input whose value follows it."""

    text: str
    field: str | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class TextLines(Protocol):
    """A program that reads lines and prints lines, and knows nothing of this package.

        TextLines("{expression}", answer="json")

    Args:
        request: what is written for a request; a line end is added. `{name}` is the value of that field of
            the input: a text as it is, anything else as JSON; `{name!j}` is always JSON. `{request_id}` is
            the request's id. Without it the input is written as one line of JSON. A text with a line break or
            another control character is refused; everything else that the program's language means by it
            is up to the author.
        answer: `"text"`: the answer is the text that it prints; `"json"`: it is read as JSON; `"number"`: it
            is read as a number, such as `.5`, which JSON has not.
        end: the line that ends an answer; it may contain `{request_id}`. It is what `request` makes the
            program print last. Without it each answer is one line.
        error: a regular expression; an answer in which it is found is an error of the program.

    Raises:
        ConfigError: a template or the regular expression is not valid.
    """

    request: str | None = None
    answer: _Form = "text"
    end: str | None = None
    error: str | None = None
    _request: tuple[_Part, ...] = field(init=False, repr=False)
    _end: tuple[_Part, ...] = field(init=False, repr=False)
    _error: re.Pattern[str] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.answer not in get_args(_Form):
            raise ConfigError(f"TextLines(answer={self.answer!r}): it is {', '.join(get_args(_Form))}.")
        object.__setattr__(self, "_request", _template("request", self.request or ""))
        object.__setattr__(self, "_end", _template("end", self.end or ""))
        if any(part.field not in (None, _ID) for part in self._end):
            raise ConfigError(f"TextLines(end={self.end!r}) may have {{{_ID}}} as its only field.")
        try:
            object.__setattr__(self, "_error", None if self.error is None else re.compile(self.error))
        except re.error as error:
            raise ConfigError(f"TextLines(error={self.error!r}) is no regular expression: {error}.") from None

    @property
    def fields(self) -> frozenset[str]:
        """The fields of the input that `request` names."""
        return frozenset(part.field for part in self._request if part.field) - {_ID}

    def dialogue(self) -> Dialogue:
        """See `Protocol.dialogue`."""
        return _TextDialogue(self)

    def written(self, request: Request) -> bytes:
        """The lines of a request.

        Raises:
            CapabilityInputError: a field is missing, or cannot be a part of a line.
        """
        if self.request is None:
            return orjson.dumps(request.payload) + b"\n"
        return f"{_filled(self._request, request)}\n".encode()

    def last_line(self, request: Request) -> bytes | None:
        """The line that ends the answer to a request; None: its first one."""
        return None if self.end is None else _filled(self._end, request).encode()

    def read(self, lines: list[bytes]) -> Answer:
        """The answer in these lines; what cannot be read is an error of the program, which may go on."""
        said = b"\n".join(lines)
        try:
            text = said.decode()
            if self._error is not None and self._error.search(text[:_JUDGED]):
                return Answer(error=excerpt(text, MAX_ERROR))
            return Answer(_READ[self.answer](text))
        except UnicodeDecodeError:
            return Answer(error=f"gave an answer that is not UTF-8: {shown(said)}")
        except ValueError:
            return Answer(error=f"gave an answer that is no number: {shown(said)}")
        except SubagentProtocolError as error:
            return Answer(error=error.message)


def _number(text: str) -> int | float:
    """A number in a text; not one that JSON has not.

    Raises:
        ValueError: there is none.
    """
    digits = text.strip()
    if not _NUMBER.fullmatch(digits):
        raise ValueError(digits)
    if _WHOLE.fullmatch(digits):
        return int(digits)
    value = float(digits)
    if not isfinite(value):
        raise ValueError(digits)
    return value


_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "text": str,
    "json": lambda text: parsed(text.encode()),
    "number": _number,
}


class _TextDialogue(Dialogue):
    def __init__(self, protocol: TextLines) -> None:
        self._protocol = protocol
        self._open = False
        self._last: bytes | None = None
        self._lines: list[bytes] = []

    def ask(self, request: Request) -> bytes:
        """See `Dialogue.ask`."""
        written = self._protocol.written(request)
        self._last, self._open = self._protocol.last_line(request), True
        return written

    def hear(self, line: bytes) -> Answer | None:
        """See `Dialogue.hear`; without a request there is no answer."""
        if not self._open:
            raise SubagentProtocolError(f"printed a line that nobody asked for: {shown(line)}")
        if self._last is None or line != self._last:
            self._lines.append(line)
        if self._last is not None and line != self._last:
            return None
        lines, self._lines, self._open = self._lines, [], False
        return self._protocol.read(lines)


def _template(name: str, text: str) -> tuple[_Part, ...]:
    try:
        found = list(Formatter().parse(text))
    except ValueError as error:
        raise ConfigError(
            f"TextLines({name}={text!r}): {error}.", hint="Write { as {{ and } as }}."
        ) from None
    for _, named, form, conversion in found:
        if named is not None and (not named.isidentifier() or form or conversion not in (None, "j")):
            raise ConfigError(
                f"TextLines({name}={text!r}): {{{named}}} is no field of an input.",
                hint="Write {name}, or {name!j} for its JSON.",
            )
    return tuple(_Part(literal, named, conversion == "j") for literal, named, _, conversion in found)


def _filled(parts: tuple[_Part, ...], request: Request) -> str:
    values: Mapping[str, Any] = {**request.payload, _ID: request.request_id}
    return "".join(part.text + ("" if part.field is None else _value(part, values)) for part in parts)


def _value(part: _Part, values: Mapping[str, Any]) -> str:
    name = str(part.field)
    if name not in values:
        raise CapabilityInputError(f"The input lacks {name!r}, which is a part of the program's line.")
    value = values[name]
    if part.as_json or not isinstance(value, str):
        return orjson.dumps(value).decode()
    if _UNSAFE.search(value):
        raise CapabilityInputError(
            f"The input's {name!r} has a line break or another control character, and becomes part of a line."
        )
    return value
