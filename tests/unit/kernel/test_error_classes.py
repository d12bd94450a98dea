"""Errors that are rebuilt from the log: of their class, and with their text."""

from __future__ import annotations

import pytest

from noesium_stream.errors import RemoteError
from noesium_stream.kernel.error_classes import declare_classes, error_of, is_declared, recorded_name


class TooManyError(Exception):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count

    def __str__(self) -> str:
        return f"there are {self.count} of them"


class SealedError(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("nothing derives from it")

    def __str__(self) -> str:
        return str(vars(self)["lost"])


declare_classes((TooManyError, SealedError))


@pytest.mark.parametrize(
    "error",
    [ValueError("no"), KeyError("k"), TooManyError(3), FileNotFoundError(2, "No such file", "/x"), OSError()],
)
def test_an_error_is_rebuilt_with_its_text_whatever_that_is_made_of(error: Exception) -> None:
    kind = type(error)
    rebuilt = error_of("e", kind.__name__, str(error), "1", recorded_name(kind))
    assert (type(rebuilt).__name__, str(rebuilt)) == (kind.__name__, str(error))
    assert isinstance(rebuilt, kind)
    assert is_declared(type(rebuilt))
    assert recorded_name(type(rebuilt)) == recorded_name(kind)


def test_an_error_that_cannot_have_its_text_is_a_remote_one() -> None:
    rebuilt = error_of("e", "SealedError", "no", "1", recorded_name(SealedError))
    assert isinstance(rebuilt, RemoteError)
