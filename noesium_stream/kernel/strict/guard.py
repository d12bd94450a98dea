"""Guard of node bodies against the clock, randomness, the network and files (STRICT mode, RFC-0003 §7).

A guarded body is watched only while it runs, not while it waits. The thread's profiler is set before each
step of its coroutine and restored after it, so that other tasks of the loop are neither watched nor slowed
down. Tasks that the body starts are watched as well: the loop has a task factory as long as a guarded body is
on it. An audit hook sees the network and files, also in threads to which the context was carried. The hook
stays installed after the first use and then costs one look at an empty set per audit event (50 ns);
everything else is restored.

`purity/blame.py` decides which code is responsible, `purity/entropy.py` what counts as entropy. A violation
that the body swallows is raised when the body ends, because its result depends on it.

Cost, measured by `python -m tests.bench.guard` (CPython 3.11): 5 µs per node and 3 µs per await. While it
runs, a body that only calls small functions takes 5 to 7 times as long, one that works on JSON twice, one
that computes in loops 1.7 times. Nodes without guard and waiting ones cost nothing.

A profiler that is set already (`sys.setprofile`, cProfile) is restored between steps and does not see the
guarded steps themselves.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import sys
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from types import FrameType
from typing import Any, Final, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import run_in_executor

from noesium_stream.errors import NondeterminismError
from noesium_stream.purity.blame import Blame, Body, awaiting, blame, body_of, call_of
from noesium_stream.purity.entropy import NAMES, Entropy, audited, called


class _Watch:
    """One guarded body, or a task that it started (`root` is then the body's own watch)."""

    def __init__(self, node: str, body: Body, root: _Watch | None = None, origin: str | None = None) -> None:
        self.node = node
        self.body = body
        self.root = root or self
        self.origin = origin
        self.coroutine: Any = None
        self.violation: NondeterminismError | None = None
        self.profile = self._profiler()

    def _profiler(self) -> Callable[[FrameType, str, Any], None]:
        names = NAMES
        meet = self.meet

        def profile(frame: FrameType, event: str, function: Any) -> None:
            if event == "c_call" and function.__name__ in names:
                meet(called(function, frame), frame)

        return profile

    def meet(self, entropy: Entropy | None, frame: FrameType | None) -> None:
        """Judge a call that is about to be made; raise if the node is responsible."""
        if entropy is None or self.root not in _active:
            return
        found = blame(frame, self.body.files, __file__, entropy.kind)
        if found.exempt:
            return
        where = found.where or self.origin
        if where is None and not found.reached:
            # A thread that the node waits for, or a callback of the loop without an owner.
            waits = awaiting(self.coroutine, self.body.files)
            if waits.exempt or _loop_runs_here():
                return
            where = waits.where
        error = self._error(entropy, found, where or self.body.begins)
        self.root.violation = self.root.violation or error
        raise error

    def _error(self, entropy: Entropy, found: Blame, where: str) -> NondeterminismError:
        through = f", called in {found.through}" if found.through else ""
        return NondeterminismError(
            f"The node {self.node} {entropy.kind.verb} at {where} ({entropy.what}{through}), which STRICT "
            "mode does not allow.",
            node=self.node,
            what=entropy.what,
            where=where,
            hint=entropy.kind.instead,
        )

    def settle(self, error: BaseException | None) -> None:
        """Raise a violation that the body swallowed, or hid behind an error of its own."""
        mine = error is None or isinstance(error, Exception)
        if self.violation is not None and error is not self.violation and mine:
            raise self.violation from error


_WATCH: Final[ContextVar[_Watch | None]] = ContextVar("noesium_watch", default=None)
_active: Final[set[_Watch]] = set()
_hooked: Final[list[bool]] = []
_factories: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _TaskFactory]] = (
    weakref.WeakKeyDictionary()
)


def guarded(function: Callable[..., Any], node: str) -> Callable[..., Any]:
    """`function`, a node's body, sync or async, under guard; its signature and annotations stay.

    Calling it raises:
        NondeterminismError: it read the clock, randomness, the network or files; names the line in its code.
        Exception: the error of `function`.
    """
    body = body_of(function)
    asynchronous = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call_of(function))
    if asynchronous:

        @wraps(function)
        async def watched(*args: Any, **kwargs: Any) -> Any:
            return await _watched(_Watch(node, body), function(*args, **kwargs))

        return watched

    @wraps(function)
    def watched_sync(*args: Any, **kwargs: Any) -> Any:
        return _watched_sync(_Watch(node, body), partial(function, *args, **kwargs))

    return watched_sync


def guard_bound(bound: Runnable[Any, Any], node: str) -> Runnable[Any, Any]:
    """A LangGraph node's `bound` with its body under guard; `bound` itself stays as it is.

    A compiled graph is returned unchanged: its nodes are guarded one by one. In another kind of Runnable (a
    sequence,
    a tool), code that LangChain runs in threads is watched for network and files only.
    """
    if hasattr(bound, "channels") and hasattr(bound, "nodes"):
        return bound
    function: Any = getattr(bound, "func", None)
    afunction: Any = getattr(bound, "afunc", None)
    if _generates(function) or _generates(afunction) or not (function or afunction):
        return _GuardedRunnable(bound, node)
    twin: Any = copy.copy(bound)
    if function is not None:
        twin.func = function = guarded(function, node)
    if isinstance(afunction, partial) and afunction.func is run_in_executor:
        # LangGraph's own way to run a sync node: the guard has to be in the thread.
        twin.afunc = wraps(function)(partial(run_in_executor, None, function))
    elif afunction is not None:
        twin.afunc = guarded(afunction, node)
    return cast(Runnable[Any, Any], twin)


def _generates(function: Any) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


@contextmanager
def exempt() -> Iterator[None]:
    """Exempt a block from the guard: for the kernel, around the calls that it journals.

    Tasks and threads started inside are exempt too. A thread does not show that the kernel started it:
    without this, a function of the node's file that the kernel runs in a thread would count as the node's own
    action. May be entered anywhere; outside a guard it does nothing.
    """
    watch = _WATCH.get()
    if watch is None:
        yield
        return
    watching = sys.getprofile() is watch.profile
    token = _WATCH.set(None)
    if watching:
        sys.setprofile(None)
    try:
        yield
    finally:
        _WATCH.reset(token)
        if watching:
            sys.setprofile(watch.profile)


class _GuardedRunnable(Runnable[Any, Any]):
    """A node that is not a plain function."""

    def __init__(self, bound: Runnable[Any, Any], node: str) -> None:
        self.name = node
        self._bound = bound
        function = getattr(bound, "afunc", None) or getattr(bound, "func", None) or type(bound).invoke
        self._body = body_of(function)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        call = partial(self._bound.invoke, input, config, **kwargs)
        return _watched_sync(_Watch(str(self.name), self._body), call)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        call = self._bound.ainvoke(input, config, **kwargs)
        return await _watched(_Watch(str(self.name), self._body), call)


async def _watched(watch: _Watch, coroutine: Coroutine[Any, Any, Any]) -> Any:
    _install_hook()
    loop = asyncio.get_running_loop()
    factory = _factories.setdefault(loop, _TaskFactory(loop))
    before = _WATCH.get()
    _active.add(watch)
    factory.enter()
    _WATCH.set(watch)
    try:
        value = await _Driven(watch, coroutine)
    except BaseException as error:
        watch.settle(error)
        raise
    finally:
        _WATCH.set(before)
        factory.leave()
        _active.discard(watch)
    watch.settle(None)
    return value


def _watched_sync(watch: _Watch, call: Callable[[], Any]) -> Any:
    _install_hook()
    before = _WATCH.get()
    _active.add(watch)
    _WATCH.set(watch)
    try:
        value = _step(watch, call)
    except BaseException as error:
        watch.settle(error)
        raise
    finally:
        _WATCH.set(before)
        _active.discard(watch)
    watch.settle(None)
    return value


def _step(watch: _Watch, function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` with the thread's profiler set, if its task is watched at this moment."""
    before = sys.getprofile()
    if _WATCH.get() is watch:
        sys.setprofile(watch.profile)
    try:
        return function(*args)
    finally:
        # cProfile is not a function: its own method restores it.
        getattr(before, "enable", partial(sys.setprofile, before))()


class _Driven(Coroutine[Any, Any, Any]):
    """A coroutine that is watched at each of its steps."""

    def __init__(self, watch: _Watch, coroutine: Any, child: bool = False) -> None:
        self._watch = watch
        self._coroutine = watch.coroutine = coroutine
        self._child = child

    def send(self, value: Any) -> Any:
        if self._child:
            _WATCH.set(self._watch if self._watch.root in _active else None)
            self._child = False
        return _step(self._watch, self._coroutine.send, value)

    def throw(self, *args: Any) -> Any:
        return _step(self._watch, self._coroutine.throw, *args)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)


class _TaskFactory:
    """Watches the tasks that guarded bodies of one loop start; other tasks are created unchanged."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._before: Any = None
        self._users = 0

    def enter(self) -> None:
        loop = self._loop()
        if self._users == 0 and loop is not None:
            self._before = loop.get_task_factory()
            loop.set_task_factory(self)
        self._users += 1

    def leave(self) -> None:
        self._users -= 1
        loop = self._loop()
        if self._users == 0 and loop is not None and loop.get_task_factory() is self:
            loop.set_task_factory(self._before)

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> Any:
        context = kwargs.get("context")
        watch = context.get(_WATCH) if context is not None else _WATCH.get()
        if watch is not None:
            coro = _child(watch, coro, sys._getframe(1))
        if self._before is None:
            return asyncio.Task(coro, loop=loop, **kwargs)
        return self._before(loop, coro, **kwargs)


def _child(watch: _Watch, coroutine: Any, frame: FrameType) -> Any:
    """The coroutine of a task that a guarded body starts, or that the kernel starts on its behalf."""
    found = blame(frame, watch.body.files, __file__, None)
    child = _Watch(watch.node, watch.body, watch.root, found.where or watch.origin)
    if found.exempt:
        child.root = child  # never active: tasks that the kernel starts are not watched
    return _Driven(child, coroutine, child=True)


def _loop_runs_here() -> bool:
    return asyncio._get_running_loop() is not None


def _install_hook() -> None:
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _active:
        return
    entropy = audited(event, arguments)
    if entropy is None:
        return
    watch = _WATCH.get()
    if watch is not None:
        watch.meet(entropy, sys._getframe(1))
