"""What a run's log takes of a value: told by whoever made it, before anything of it is staged."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final

import orjson

from noesium_stream.errors import RecordTooLargeError, StateError
from noesium_stream.log.prepare import MAX_RECORD_BYTES

MAX_VALUE_BYTES: Final = MAX_RECORD_BYTES
"""Of a value as JSON text; a record of the log has room for the rest of its event besides."""

ELSEWHERE: Final = (
    "Store it elsewhere (a file, an object store) and keep its address and its hash in the state."
)


class said_of:
    """Put `who` before what a `StateError` says; a class, since a generator costs three times as much."""

    __slots__ = ("_who",)

    def __init__(self, who: str) -> None:
        self._who = who

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises `StateError` instead of the one that came."""
        if isinstance(error, StateError):
            raise StateError(f"{self._who}: {error.message}", hint=error.hint) from error


def check_size(recorded: Any, path: str, who: str) -> None:
    """Refuse a value that no record takes; `recorded` has a JSON form, `who` made it.

    Raises:
        RecordTooLargeError: names the size, the limit, and the path of what makes it too large.
        StateError: it has no JSON text after all.
    """
    size = _size(recorded, path)
    if size <= MAX_VALUE_BYTES:
        return
    path, at_fault = _largest(recorded, path, size)
    raise RecordTooLargeError(
        f"{who}: {path} has {at_fault:,} bytes as JSON, and a step records at most {MAX_VALUE_BYTES:,}.",
        hint=ELSEWHERE,
    )


def _size(recorded: Any, path: str) -> int:
    try:
        return len(orjson.dumps(recorded))
    except TypeError as error:
        raise StateError(f"{path} cannot be written as JSON: {error}.") from error


def _largest(recorded: Any, path: str, size: int) -> tuple[str, int]:
    """The innermost part that is too large by itself."""
    for inner_path, inner in _parts(recorded, path):
        inner_size = _size(inner, inner_path)
        if inner_size > MAX_VALUE_BYTES:
            return _largest(inner, inner_path, inner_size)
    return path, size


def _parts(recorded: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(recorded, dict):
        yield from ((f"{path}.{key}", item) for key, item in recorded.items())
    elif isinstance(recorded, list):
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(recorded))
