"""Patterns with wildcards, and which of two covers the other.

A pattern covers another one if each of its wildcards can be replaced by some text so that it becomes the
other; that text may contain wildcards itself. So a text without wildcards is matched, and a narrower pattern
is recognised, by the same comparison. It is reflexive and transitive, and takes time proportional to the
product of the lengths at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

MANY: Final = "*"
ONE: Final = "?"
DEEP: Final = "**"
"""In a path: any number of whole parts, none included."""


def covers_text(pattern: str, text: str, *, forbidden: str = "") -> bool:
    """Whether a pattern, in which `*` is any text without the `forbidden` characters, covers another one."""
    if MANY not in pattern:
        return pattern == text
    return _covers(pattern, text, MANY, str.__eq__, lambda char: char not in forbidden)


def covers_parts(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a pattern of path parts covers another one.

    `**` is any number of parts, `*` any text within a part, `?` one character of it.
    """
    return _covers(pattern, parts, DEEP, _covers_part, _anything)


def _covers_part(pattern: str, part: str) -> bool:
    if part == DEEP:
        return False
    if MANY not in pattern and ONE not in pattern:
        return pattern == part
    return _covers(pattern, part, MANY, _covers_char, _anything)


def _covers_char(pattern: str, char: str) -> bool:
    return pattern == char or (pattern == ONE and char != MANY)


def _anything(item: object) -> bool:
    return True


def _covers(
    pattern: Sequence[T],
    items: Sequence[T],
    wildcard: T,
    equal: Callable[[T, T], bool],
    fills: Callable[[T], bool],
) -> bool:
    """Compare item by item; after a mismatch the last wildcard takes one item more."""
    at = item = 0
    wild, resume = -1, 0
    while item < len(items):
        if at < len(pattern) and pattern[at] == wildcard:
            wild, resume = at, item
            at += 1
        elif at < len(pattern) and equal(pattern[at], items[item]):
            at += 1
            item += 1
        elif wild >= 0 and fills(items[resume]):
            resume += 1
            at, item = wild + 1, resume
        else:
            return False
    return all(rest == wildcard for rest in pattern[at:])
