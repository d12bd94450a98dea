"""Names of tools as models take them: `[A-Za-z0-9_-]{1,64}`, without collisions, and reversible."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

from noesium_stream.errors import ConfigError, ToolNotFoundError

LONGEST: Final = 64

_INVALID: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS: Final = 8


class ModelNames:
    """The names of some tools, and what a model calls each.

    A name that is valid for models stays. Another one has `_` for what is not valid; if that is taken, or too
    long, it ends in digits of the name's hash. The order of the names makes no difference.

    Raises:
        ConfigError: two names cannot be told apart.
    """

    def __init__(self, names: Iterable[str]) -> None:
        every = sorted(set(names))
        self._given = {name: name for name in every if is_model_name(name)}
        taken = set(self._given.values())
        others = [name for name in every if name not in self._given]
        plain = [_INVALID.sub("_", name) for name in others]
        for name, candidate in zip(others, plain, strict=True):
            unique = len(candidate) <= LONGEST and candidate not in taken and plain.count(candidate) == 1
            self._given[name] = candidate if unique else _with_digits(name, candidate)
        self._names = {given: name for name, given in self._given.items()}
        if len(self._names) < len(self._given):
            raise ConfigError(
                "Two tools have names that no model can tell apart.", hint="Rename one of them."
            )

    def for_model(self, name: str) -> str:
        """What a model calls a tool.

        Raises:
            ToolNotFoundError: it is none of these tools.
        """
        return _found(self._given, name)

    def of_tool(self, model_name: str) -> str:
        """The tool that a model calls so.

        Raises:
            ToolNotFoundError: none of these tools is called so.
        """
        return _found(self._names, model_name)


def is_model_name(name: str) -> bool:
    """Whether models take this name as it is."""
    return 0 < len(name) <= LONGEST and _INVALID.search(name) is None


def _with_digits(name: str, candidate: str) -> str:
    digits = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
    return f"{candidate[: LONGEST - _DIGITS - 1]}_{digits}"


def _found(names: dict[str, str], name: str) -> str:
    try:
        return names[name]
    except KeyError:
        raise ToolNotFoundError(f"There is no tool {name[:200]!r}.") from None
