"""Classes of errors that recorded failures are rebuilt with: a closed table, filled from code alone.

A failed effect is recorded with the name of its error's class. The name is hostile when it is read back: it
is looked up here and never imported. The table holds the built-in exceptions, this package's, and those that
the modules of a graph's nodes can name in an `except`: their own, and those of modules and functions that
they import. An error of another class is recorded as the nearest of its bases in the table. One that has none
but `Exception` is a `RemoteError`, on the first execution as well as on a later one: a node has to catch the
same when it is executed again.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, Final

from noesium_stream import errors
from noesium_stream.errors import NoesiumError, RemoteError

_TABLE: Final[dict[str, type[Exception]]] = {}
_TELLING: Final[dict[type[Exception], type[Exception]]] = {}


def recorded_name(kind: type[BaseException]) -> str:
    """The name under which an error of this class is recorded: `module:qualified.name`."""
    return _name(_declared_base(kind) or kind)


def is_declared(kind: type[BaseException]) -> bool:
    """Whether code here can name this class or a base of it, other than `Exception`."""
    return _declared_base(kind) is not None


def declare_errors(functions: Iterable[Any]) -> None:
    """Add the classes that the modules of these functions can name."""
    for function in functions:
        while isinstance(function, partial):
            function = function.func
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        if module is not None:
            for found in _named_in(module):
                _TABLE.setdefault(_name(found), found)


def declare_classes(kinds: Iterable[type[Exception]]) -> None:
    """Add classes that code here names elsewhere than in a module."""
    for kind in kinds:
        _TABLE.setdefault(_name(kind), kind)


def error_of(name: str, error_type: str, message: str, effect_id: str, error_class: str | None) -> Exception:
    """The error of a recorded failure, without its attributes.

    Args:
        name: of the effect.
        error_type: name of the error's class, without its module.
        message: its text.
        effect_id: the effect's id on the log.
        error_class: the class as in `recorded_name`, if it was recorded.
    """
    kind = _TABLE.get(error_class or "")
    error = None if kind is None else _made(kind, message)
    return error or RemoteError(
        f"The effect {name} failed: {error_type}: {message}",
        effect_id=effect_id,
        recorded=(error_type, message),
        error_class=error_class,
    )


def _name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _declared_base(kind: type[BaseException]) -> type[BaseException] | None:
    for base in kind.__mro__:
        if base is Exception and base is not kind:
            return None
        if _TABLE.get(_name(base)) is base:
            return base
    return None


def _made(kind: type[Exception], message: str) -> Exception | None:
    """An error of this class with this message; None if it cannot be made without its `__init__`."""
    try:
        error = _with_message(kind, message)
        if _says(error, message):
            return error
        return _with_message(_telling(kind), message)
    except Exception:
        return None


def _with_message(kind: type[Exception], message: str) -> Exception:
    error = kind.__new__(kind)
    error.args = (message,)
    if isinstance(error, NoesiumError):
        error.message, error.hint = message, None
    return error


def _says(error: Exception, message: str) -> bool:
    try:
        return str(error) == message
    except Exception:  # its text is made of attributes that it has lost
        return False


def _telling(kind: type[Exception]) -> type[Exception]:
    """A class like this one whose text is the message, for errors whose text is not their argument."""

    def text(self: Exception) -> str:
        return str(self.args[0])

    if kind not in _TELLING:
        like = {"__str__": text, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
        _TELLING[kind] = type(kind.__name__, (kind,), like)
    return _TELLING[kind]


def _named_in(module: ModuleType) -> Iterator[type[Exception]]:
    """The exceptions that are globals of a module, or of the modules that its globals are or come from."""
    modules: dict[ModuleType, None] = {module: None}
    for value in list(vars(module).values()):
        found = value if isinstance(value, ModuleType) else sys.modules.get(_home_of(value))
        if found is not None:
            modules[found] = None
    for one in modules:  # each once, however many names come from it
        yield from _exceptions(one)


def _home_of(value: Any) -> str:
    name = getattr(value, "__module__", None) if callable(value) else None
    return name if isinstance(name, str) else ""


def _exceptions(module: ModuleType) -> Iterator[type[Exception]]:
    for value in list(vars(module).values()):
        if isinstance(value, type) and issubclass(value, Exception):
            yield value


for _kind in (*_exceptions(builtins), *_exceptions(errors)):
    _TABLE[_name(_kind)] = _kind
