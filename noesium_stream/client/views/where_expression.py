"""Conditions on runs as a small language: read into a tree, then judged by values that are given by name.

    customer = 7 and status = open
    region in (north, south) and not (amount < 100 or due is null)

A comparison is `NAME = VALUE`, with `!=`, `<`, `<=`, `>` and `>=`, or `NAME in (VALUE, …)`, `NAME is null`,
and with `not in` and `is not`. They are combined by `and`, `or`, `not` and parentheses. A value with spaces
or signs in it stands in quotes, in which a doubled quote is one. Nothing is executed: a condition can only
compare.

Decision record: a parser of a hundred lines takes the place of a library. Those that parse SQL read far more
than this, and what they accept would have to be refused again.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from noesium_stream.clock import to_ms
from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope_fields import short

MAX_EXPRESSION: Final = 2_000
"""Characters of a condition."""
MAX_DEPTH: Final = 30
"""How deep parentheses and `not` may be nested."""

_HINT: Final = "Say it as in: customer = 7 and status = open. `noesium guide operate` has the whole language."
_WORDS: Final = frozenset({"and", "or", "not", "in", "is", "null"})
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<op><=|>=|!=|<>|==|=|<|>)|(?P<sign>[(),])|(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")"""
    r"""|(?P<word>[^\s()<>=!,'"]+))"""
)
_NUMBER: Final = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")
_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Time(NamedTuple):
    """A point in time, in milliseconds since the epoch."""

    ms: int


class Literal(NamedTuple):
    """A value of a condition: its text, and whether it stood in quotes."""

    text: str
    quoted: bool = False

    @property
    def number(self) -> int | float | None:
        """The number that it is, if it is one."""
        if self.quoted or _NUMBER.fullmatch(self.text) is None:
            return None
        return int(self.text) if self.text.lstrip("-").isdigit() else float(self.text)

    @property
    def time(self) -> Time | None:
        """The point in time that it is, if it is one: a date or time as in ISO 8601, by default in UTC."""
        try:
            moment = datetime.fromisoformat(self.text)
            return Time(to_ms(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)))
        except (ValueError, OverflowError):
            return None


Values = Callable[[str], Any]
"""Returns the value of a name: a text, bool, number, `Time`, None, or a set of texts that all count."""


class Expression:
    """A condition on a run."""

    @property
    def names(self) -> frozenset[str]:
        """The names that it compares."""
        raise NotImplementedError

    def holds(self, values: Values) -> bool:
        """Whether it holds for these values."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """`NAME OP VALUE…`: a name that has no value fulfils `is null` alone."""

    name: str
    op: str
    literals: tuple[Literal, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The name."""
        return frozenset({self.name})

    def holds(self, values: Values) -> bool:
        """Whether it holds for these values."""
        value = values(self.name)
        if self.op in ("is null", "is not null"):
            return (value is None) == (self.op == "is null")
        if value is None:
            return False
        if self.op in ("=", "in"):
            return any(equals(value, literal) for literal in self.literals)
        if self.op in ("!=", "not in"):
            return not any(equals(value, literal) for literal in self.literals)
        pair = _ordered(value, self.literals[0])
        return pair is not None and _ORDERS[self.op](*pair)


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """`not PART`."""

    part: Expression

    @property
    def names(self) -> frozenset[str]:
        """The names of its part."""
        return self.part.names

    def holds(self, values: Values) -> bool:
        """Whether its part does not hold."""
        return not self.part.holds(values)


@dataclass(frozen=True, slots=True)
class Combined(Expression):
    """`PART and PART…`, or `PART or PART…`; without a part every run fulfils `and`."""

    every: bool
    parts: tuple[Expression, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of all parts."""
        return frozenset().union(*(part.names for part in self.parts))

    def holds(self, values: Values) -> bool:
        """Whether all parts hold, or one of them."""
        return (all if self.every else any)(part.holds(values) for part in self.parts)


ANY_RUN: Final = Combined(True, ())
"""The condition that every run fulfils."""


def equals(value: Any, literal: Literal) -> bool:
    """Whether a value is the one that a condition names.

    A text equals its characters; a number or a boolean equals one that is written without quotes.
    """
    if isinstance(value, frozenset):
        return literal.text in value
    if isinstance(value, str):
        return value == literal.text
    if isinstance(value, bool):
        return not literal.quoted and literal.text.lower() == str(value).lower()
    if isinstance(value, Time):
        return value == literal.time
    if isinstance(value, int | float):
        return value == literal.number
    return False


def _ordered(value: Any, literal: Literal) -> tuple[Any, Any] | None:
    """Both sides of a comparison of order; None: there is none between them."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return None if literal.number is None else (value, literal.number)
    if isinstance(value, Time):
        return None if literal.time is None else (value.ms, literal.time.ms)
    return (value, literal.text) if isinstance(value, str) else None


def all_of(parts: Iterable[Expression]) -> Expression:
    """The condition that all of these hold."""
    found = tuple(parts)
    return found[0] if len(found) == 1 else Combined(True, found)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these words of the language."""
        return self.kind == "word" and self.text.lower() in words


@lru_cache(256)
def parse_expression(text: str) -> Expression:
    """Read a condition.

    Raises:
        ConfigError: it is none; says where, counted in characters from 1.
    """
    if len(text) > MAX_EXPRESSION:
        raise ConfigError(
            f"A condition has {len(text):,} characters, more than {MAX_EXPRESSION:,}.", hint=_HINT
        )
    return _Parser(text).parse()


class _Parser:
    """Recursive descent, a method for each rule; `_at` is the next token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._at = 0

    def parse(self) -> Expression:
        found = self._either(MAX_DEPTH)
        if self._next.kind != "end":
            raise self._wrong("`and`, `or` or the end")
        return found

    def _split(self) -> Iterable[_Token]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None or match.lastgroup is None:
                start = at + len(self._text[at:]) - len(self._text[at:].lstrip())
                raise self._error(f"{self._text[start]} is unexpected", start)
            yield _Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))
            at = match.end()
        yield _Token("end", "", end)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _either(self, depth: int) -> Expression:
        parts = [self._both(depth)]
        while self._next.is_word("or"):
            self._take()
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else Combined(False, tuple(parts))

    def _both(self, depth: int) -> Expression:
        parts = [self._one(depth)]
        while self._next.is_word("and"):
            self._take()
            parts.append(self._one(depth))
        return all_of(parts)

    def _one(self, depth: int) -> Expression:
        if depth == 0:
            raise self._error("it is nested too deep", self._next.at)
        if self._next.is_word("not"):
            self._take()
            return Not(self._one(depth - 1))
        if self._next.text == "(" and self._next.kind == "sign":
            self._take()
            found = self._either(depth - 1)
            self._expect(")")
            return found
        return self._comparison()

    def _comparison(self) -> Expression:
        if self._next.kind != "word" or self._next.is_word(*_WORDS):
            raise self._wrong("a name")
        name = self._take().text
        if self._next.kind == "op":
            op = {"==": "=", "<>": "!="}.get(self._next.text, self._next.text)
            self._take()
            return Comparison(name, op, (self._literal(),))
        if self._next.is_word("is"):
            self._take()
            negated = self._word("not")
            if not self._word("null"):
                raise self._wrong("null")
            return Comparison(name, "is not null" if negated else "is null")
        negated = self._word("not")
        if not self._word("in"):
            raise self._wrong("in" if negated else f"=, !=, <, <=, >, >=, in or is after {short(name)}")
        return Comparison(name, "not in" if negated else "in", self._list())

    def _word(self, word: str) -> bool:
        """Take this word if it comes next."""
        found = self._next.is_word(word)
        self._at += found
        return found

    def _list(self) -> tuple[Literal, ...]:
        self._expect("(")
        found = [self._literal()]
        while self._next.text == "," and self._next.kind == "sign":
            self._take()
            found.append(self._literal())
        self._expect(")")
        return tuple(found)

    def _literal(self) -> Literal:
        token = self._next
        if token.is_word("null"):
            raise self._error("null is compared by `is null` and `is not null`", token.at)
        if token.kind == "text":
            quote = token.text[0]
            self._take()
            return Literal(token.text[1:-1].replace(quote * 2, quote), quoted=True)
        if token.kind != "word":
            raise self._wrong("a value")
        return Literal(self._take().text)

    def _expect(self, sign: str) -> None:
        if self._next.kind != "sign" or self._next.text != sign:
            raise self._wrong(sign)
        self._take()

    def _wrong(self, wanted: str) -> ConfigError:
        token = self._next
        found = "the end" if token.kind == "end" else short(token.text)
        return self._error(f"{found} stands where {wanted} is expected", token.at)

    def _error(self, reason: str, at: int) -> ConfigError:
        return ConfigError(
            f"{short(self._text)} is no condition: at character {at + 1}, {reason}.", hint=_HINT
        )
