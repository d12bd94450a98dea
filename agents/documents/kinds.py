"""What a passage is made of: prose, docstrings, code, what stands at a project's side, or its tests.

Questions in words are answered by prose where there is any: code speaks of the same things, in more
places, and seldom says what they are for.
"""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["prose", "docstring", "code", "side", "test"]

PRIOR: dict[Kind, float] = {"prose": 1.0, "docstring": 0.65, "code": 0.45, "side": 0.35, "test": 0.1}
"""How much a match in a passage of this kind counts for a question in words."""

_SIDE = re.compile(r"(?:^|/)(?:vendor|changelog|changes|news|license|licence|copying)\b", re.I)
_TEST = re.compile(r"(?:^|/)(?:tests?|testing|examples?)\b", re.I)
_NAME = re.compile(r"\w_\w|[a-z][A-Z]|\w\(|[A-Za-z_]\w+\.[A-Za-z_]\w+|::|[{}=<>]")
_ABOUT_CODE = re.compile(
    r"\b(?:functions?|class(?:es)?|methods?|variables?|constants?|attributes?|docstrings?|decorators?)\b",
    re.I,
)


def is_source(path: str) -> bool:
    """Whether the file at `path` is source code."""
    return path.endswith((".py", ".pyi"))


def kind_of_passage(path: str, code: bool) -> Kind:
    """The kind of a passage of the file at `path`; `code` tells whether most of it is code."""
    if _TEST.search(path):
        return "test"
    if _SIDE.search(path):
        return "side"
    if code:
        return "code"
    return "docstring" if is_source(path) else "prose"


def asks_for_code(question: str) -> bool:
    """Whether a question or query names something of a program, or asks for such a thing."""
    return bool(_NAME.search(question) or _ABOUT_CODE.search(question))
