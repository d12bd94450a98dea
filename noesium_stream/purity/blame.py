"""Attribution of a call in a guarded node: which code caused it, and on which line of the node's code.

The stack from the call up to the guard is judged by the location of its code:
- Code of this package (except `clock.py`, which a node may not use directly), imports, logging, warnings and
time zone data: caused by the kernel or the interpreter.
- asyncio and the like, which need a clock to wait: exempt if they make the call themselves.
- LangGraph, LangChain, tracing and logging libraries: exempt for clock, ids and threads of their own
bookkeeping. Calls that they make in other packages (HTTP clients, the user's functions) are caused by the
node.
- Everything else is caused by the node, however deep in libraries.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import importlib
import inspect
import logging
import os
import sysconfig
import zoneinfo
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, partial
from types import FrameType
from typing import Any, Final

from noesium_stream.purity.entropy import Kind


class Origin(Enum):
    """Location of code, as far as it matters here."""

    EXEMPT = auto()
    WAITING = auto()
    BOOKKEEPING = auto()
    STANDARD = auto()
    LIBRARY = auto()
    USER = auto()


@dataclass(frozen=True, slots=True)
class Body:
    """A node's own code: its files, and its first line (`FILE:LINE`)."""

    files: frozenset[str]
    begins: str


@dataclass(frozen=True, slots=True)
class Blame:
    """The attribution of a stack.

    `where` is the innermost line of the node's code on it, `through` the innermost line of the user's other
    code; `reached` tells whether the guard itself was found.
    """

    exempt: bool
    where: str | None = None
    through: str | None = None
    reached: bool = False


def body_of(function: Any) -> Body:
    """The node's own code, behind partials, decorators, methods and callable objects."""
    codes = []
    for _ in range(20):
        if isinstance(function, partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif not hasattr(function, "__code__") and inspect.ismethod(call_of(function)):
            function = call_of(function).__func__
        if hasattr(function, "__code__"):
            codes.append(function.__code__)
        if not hasattr(function, "__wrapped__"):
            break
        function = function.__wrapped__
    if not codes:
        return Body(frozenset(), "unknown place")
    innermost = codes[-1]
    files = frozenset(code.co_filename for code in codes)
    return Body(files, shown(innermost.co_filename, innermost.co_firstlineno))


def call_of(function: Any) -> Any:
    """The code that a call of a callable object executes."""
    return getattr(function, "__call__", None)  # noqa: B004


def blame(
    frame: FrameType | None,
    files: frozenset[str],
    guard_file: str,
    kind: Kind | None,
    *,
    also_ours: bool = False,
) -> Blame:
    """Judge the stack from `frame` up to the first frame of `guard_file`.

    `kind` is the kind of read; None asks only whether the stack is exempt as a whole. With `also_ours`
    guarded code of this package is judged too.
    """
    where = through = None
    first: Origin | None = None
    innermost = True
    while frame is not None and frame.f_code.co_filename != guard_file:
        name = frame.f_code.co_filename
        origin = origin_of(name)
        if _collecting(frame) or (origin is Origin.EXEMPT and not (also_ours and name in files)):
            return Blame(exempt=True)
        if innermost and origin is Origin.WAITING and kind is Kind.CLOCK:
            return Blame(exempt=True)
        innermost = False
        if origin not in (Origin.STANDARD, Origin.WAITING) and first is None:
            first = origin
        if where is None and name in files:
            where = shown(name, frame.f_lineno)
        elif through is None and where is None and origin is Origin.USER:
            through = shown(name, frame.f_lineno)
        frame = frame.f_back
    own = first is Origin.BOOKKEEPING and kind in (Kind.CLOCK, Kind.CHANCE, Kind.THREAD)
    return Blame(exempt=own, where=where, through=through, reached=frame is not None)


def _collecting(frame: FrameType) -> bool:
    """Whether the garbage collector is running: the time of its runs is not the node's choice."""
    code = frame.f_code
    return code.co_name == "__del__" or any(
        getattr(callback, "__code__", None) is code for callback in gc.callbacks
    )


def awaiting(coroutine: Any, files: frozenset[str]) -> Blame:
    """The line of the node's code where a suspended coroutine waits.

    The result also tells whether it waits for the kernel.
    """
    where = None
    exempt = False
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        exempt = exempt or origin_of(frame.f_code.co_filename) is Origin.EXEMPT
        if frame.f_code.co_filename in files:
            where = shown(frame.f_code.co_filename, frame.f_lineno)
        coroutine = coroutine.cr_await
    return Blame(exempt=exempt, where=where)


def shown(file: str, line: int) -> str:
    """`FILE:LINE`, relative to the current folder where the file lies below it."""
    folder = _FOLDER + os.sep
    return f"{file.removeprefix(folder)}:{line}"


@cache
def origin_of(file: str) -> Origin:
    """The origin of a file's code."""
    if file.startswith("<frozen importlib") or file.startswith("<frozen zipimport"):
        return Origin.EXEMPT
    for folders, origin in _ORIGINS:
        if file.startswith(folders):
            return origin
    return Origin.STANDARD if file.startswith("<frozen") else Origin.USER


def _folder(module: Any) -> str:
    return os.path.dirname(str(module.__file__)) + os.sep


def _order() -> list[tuple[tuple[str, ...], Origin]]:
    paths = sysconfig.get_paths()
    sites = tuple({paths["purelib"] + os.sep, paths["platlib"] + os.sep})
    standard = tuple({paths["stdlib"] + os.sep, paths["platstdlib"] + os.sep, _folder(inspect)})
    base = _folder(inspect)
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    files = ("warnings.py", "linecache.py", "tokenize.py", "traceback.py", "pkgutil.py", "inspect.py")
    exempt = (own, _folder(importlib), _folder(logging), _folder(zoneinfo), *(base + name for name in files))
    waiting = (_folder(asyncio), _folder(concurrent.futures), base + "threading.py", base + "queue.py")
    return [
        ((own + "clock.py",), Origin.LIBRARY),
        (exempt, Origin.EXEMPT),
        ((*waiting, base + "selectors.py"), Origin.WAITING),
        (tuple(site + "uuid_utils" + os.sep for site in sites), Origin.STANDARD),
        (tuple(site + name + os.sep for site in sites for name in _BOOKKEEPING), Origin.BOOKKEEPING),
        (sites, Origin.LIBRARY),
        (standard, Origin.STANDARD),
    ]


_BOOKKEEPING: Final = (
    "langgraph",
    "langchain_core",
    "langsmith",
    "opentelemetry",
    "structlog",
    "loguru",
    "sentry_sdk",
)
_FOLDER: Final = os.getcwd()
_ORIGINS: Final = _order()
