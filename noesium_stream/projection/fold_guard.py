"""Guard against nondeterministic reads during a fold, per thread (RFC-0004 §4.3.1)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from noesium_stream.errors import ImpureProjectionError


class Nondeterministic:
    """Base of eventually consistent sources, such as a semantic index, that no fold may read."""


class _Folding(threading.local):
    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *raised: object) -> None:
        self.depth -= 1


FOLDING = _Folding()
"""Context manager that marks calls of a projection's `key` and `apply`."""


def refuse_in_fold(what: str) -> None:
    """Raise if called during a fold; sources that no fold may read call it.

    Raises:
        ImpureProjectionError: this thread is in a fold.
    """
    if FOLDING.depth:
        raise ImpureProjectionError(
            f"A projection has read {what}, which is eventual: another fold would find something else there.",
            hint="Look it up before the event is made, and let the event say what was found.",
        )


def through(call: Callable[..., Any] | None, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function with a guard; without a guard, return the function.

    A guard's optional method `instead_of` is called once and returns the function to call instead.
    """
    if call is None:
        return function
    instead_of: Callable[..., Callable[..., Any]] | None = getattr(call, "instead_of", None)
    return partial(call, function) if instead_of is None else instead_of(function)
