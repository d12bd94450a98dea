"""The tool call whose code runs: model calls that it makes belong to it, and not to the step's own code.

Once such a tool call has its outcome on the log, a second execution of the step does not call the tool, so
the model calls within it are not made again either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_CALL: Final[ContextVar[str | None]] = ContextVar("noesium_serving_call", default=None)


def serving_call() -> str | None:
    """The id of the effect whose tool's code is running; None: it is the step's own code."""
    return _CALL.get()


@contextmanager
def serving(effect_id: str) -> Iterator[None]:
    """Run the code of a tool."""
    token = _CALL.set(effect_id)
    try:
        yield
    finally:
        _CALL.reset(token)
