"""Calls of functions that must be pure, with detection of reads other than their arguments (law 6).

The means are those of the kernel's guard (`kernel/strict/guard.py`), for one plain call: the thread's
profiler sees C functions, the audit hook sees reads within C code. Besides clock, randomness, network and
files, pure functions may not read the environment nor use `hash()` or `id()`: these differ from process to
process.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final

from noesium_stream.purity.blame import Body, blame, body_of
from noesium_stream.purity.entropy import NAMES, Entropy, Kind, audited, called

_ENVIRON: Final = frozenset(
    getattr(type(os.environ), name).__code__ for name in ("__getitem__", "__iter__", "__setitem__", "__len__")
)
_BUILTINS: Final = {
    "hash": Entropy(Kind.CHANCE, "hash(), which is another one in each process"),
    "id": Entropy(Kind.CHANCE, "id(), which is another one in each process"),
}


class ImpureCallError(Exception):
    """An impure read of a function; `where` is the line."""

    def __init__(self, entropy: Entropy, where: str) -> None:
        super().__init__(f"{entropy.kind.verb} at {where} ({entropy.what})")
        self.kind = entropy.kind


class _Watch(threading.local):
    call: PureCall | None = None


_WATCH: Final = _Watch()
_hooked: Final[list[bool]] = []


class PureCall:
    """Calls one function under watch. The function must not call itself through this object.

    Args:
        function: a plain function or a method.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._body: Body = body_of(function)
        self._found: ImpureCallError | None = None

    def __call__(self, *args: Any) -> Any:
        """Call the function and return its result.

        Raises:
            ImpureCallError: it made an impure read, even if it has swallowed this error.
            Exception: any error of the function.
        """
        if not _hooked:
            _hooked.append(True)
            sys.addaudithook(_audit)
        self._found = None
        before, outer = sys.getprofile(), _WATCH.call
        _WATCH.call = self
        sys.setprofile(self._profile)
        try:
            result = self._function(*args)
        except ImpureCallError:
            raise
        except Exception as error:
            if self._found is not None:
                raise self._found from error
            raise
        finally:
            # cProfile is not a function: restore it by its `enable`.
            getattr(before, "enable", partial(sys.setprofile, before))()
            _WATCH.call = outer
        if self._found is not None:
            raise self._found
        return result

    def _profile(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            name = function.__name__
            if name in NAMES:
                self.meet(called(function, frame), frame)
            elif name in _BUILTINS and self._calls_builtin(frame, function):
                self.meet(_BUILTINS[name], frame)
        elif event == "call" and frame.f_code in _ENVIRON:
            self.meet(Entropy(Kind.ENVIRONMENT, "os.environ"), frame)

    def _calls_builtin(self, frame: FrameType, function: Any) -> bool:
        """Whether the user's code calls it directly; libraries may use it without visible effects."""
        code = frame.f_code
        own = code.co_filename in self._body.files and code.co_name != "__hash__"
        return own and function.__module__ == "builtins"

    def meet(self, entropy: Entropy | None, frame: FrameType | None) -> None:
        """Judge a call that is about to be made; raise if the function caused it."""
        if entropy is None:
            return
        found = blame(frame, self._body.files, __file__, entropy.kind, also_ours=True)
        if found.exempt or not found.reached:
            return
        where = found.where or self._body.begins
        through = f", called in {found.through}" if found.through else ""
        self._found = self._found or ImpureCallError(entropy._replace(what=f"{entropy.what}{through}"), where)
        raise self._found


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    call = _WATCH.call
    if call is None:
        return
    entropy = audited(event, arguments)
    if entropy is not None:
        call.meet(entropy, sys._getframe(1))
