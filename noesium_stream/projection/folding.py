"""Whether a deterministic fold is going on in this thread, and what it may not touch (RFC-0004 §4.3.1)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from noesium_stream.errors import ImpureProjectionError


class Nondeterministic:
    """Base of what is eventual, and so never read by a fold: a semantic index."""


class _Folding(threading.local):
    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *raised: object) -> None:
        self.depth -= 1


FOLDING = _Folding()
"""Held by whoever calls `key` and `apply` of projections."""


def refuse_in_fold(what: str) -> None:
    """To be called by what no fold may read.

    Raises:
        ImpureProjectionError: a fold goes on in this thread.
    """
    if FOLDING.depth:
        raise ImpureProjectionError(
            f"A projection has read {what}, which is eventual: another fold would find something else there.",
            hint="Look it up before the event is made, and let the event say what was found.",
        )


def through(call: Callable[..., Any] | None, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is called by a guard that stands in between; itself where there is none.

    A guard with a method `instead_of` says by it, once, what is called in the function's place.
    """
    if call is None:
        return function
    instead_of: Callable[..., Callable[..., Any]] | None = getattr(call, "instead_of", None)
    return partial(call, function) if instead_of is None else instead_of(function)
