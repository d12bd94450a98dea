"""References to functions and graphs by name, of a module or of the agent, which other processes can resolve.

Decision record: the body of a completed node is never executed again, so its compensation cannot be obtained
by running it. Hence names, and no closures or lambdas: they would be refused when it is too late. A graph
does not know its own name, so it is always given by name.

A name that is read from a log is hostile: `os:system` is one, too. It is resolved only if code of the run's
own agent declares it: by naming it in `kernel_node(compensate=...)` or `on_failure`, or by the mark of
`kernel_compensation` on a function or graph of a module that the agent's code imports (`Reach`). Another name
is not imported and not called, though another agent of the same worker may declare it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import FunctionType
from typing import Any, Final

from langgraph.graph.state import CompiledStateGraph

from noesium_stream.errors import KernelError
from noesium_stream.kernel.reach import Reach

Graph = CompiledStateGraph[Any, Any, Any, Any]
Undo = Callable[..., Any] | str
"""A function of a module or a method of the agent; or the name of one of these or of a compiled graph:
`module:NAME`, or the name of a method or an attribute of the agent."""


_DECLARE: Final = (
    "Put @kernel_compensation() on the function, or make the graph with kernel_compensation()(graph), in a "
    "module that the modules of the agent or of its nodes import at their top."
)
MARK: Final = "_kernel_compensation"
"""Attribute of functions and graphs that may be called as compensations."""


def require_declared(named: str, agent: object, reaches: Sequence[Reach], what: str) -> None:
    """Refuse a compensation that another process would not call; `what` names its owner.

    Raises:
        KernelError: nothing declares it.
    """
    try:
        find(named, agent, reaches)
    except KernelError as error:
        raise KernelError(f"The compensation of {what}: {error.message}", hint=_DECLARE) from error


def reference(function: Undo, what: str, *, defined: bool = True) -> str:
    """`module:qualified.name`, or `.name` for a method of the agent; `what` names its owner in an error.

    With `defined` it is looked up at once; a decorator in a class body cannot do that.

    Raises:
        KernelError: it cannot be found by its name.
    """
    if isinstance(function, str):
        return _named(function, what, defined)
    owner = getattr(function, "__self__", None)
    if inspect.ismethod(function) and not isinstance(owner, type):
        name = function.__name__
        if hasattr(owner, "agent_type") and getattr(owner, name, None) == function:
            return f".{name}"
        raise _refused(function, what)
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not callable(function) or not module or not path or "<" in path:
        raise _refused(function, what)
    found = f"{module}:{path}"
    if defined:
        try:
            same = _imported(found)[1] == function
        except KernelError:
            same = False
        if not same:
            raise _refused(function, what)
    return found


def _named(name: str, what: str, defined: bool) -> str:
    if name.isidentifier():
        return f".{name}"
    if ":" not in name:
        raise KernelError(
            f"compensate={name!r} of {what} is no name of a method of the agent, and not MODULE:NAME."
        )
    if defined:
        _imported(name)
    return name


def check_callable(function: Undo, what: str, *args: Any, **kwargs: Any) -> None:
    """Refuse a compensation that does not accept its arguments.

    Raises:
        KernelError: it has other parameters.
    """
    if isinstance(function, str):
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a builtin that does not expose its parameters
    if takes_key(function):
        kwargs = {**kwargs, "idempotency_key": ""}
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise KernelError(
            f"The compensation of {what} does not take what it will be given: {error}.",
            hint="It is called with the effect's result, followed by the effect's own arguments.",
        ) from error


def find(reference: str, agent: object, reaches: Sequence[Reach]) -> Callable[..., Any] | Graph:
    """The declared function or graph behind `reference`; a method is bound to `agent`.

    Args:
        reference: the name, of the log or of a declaration.
        agent: the run's agent.
        reaches: what its graphs can name: all versions of it that this process carries.

    Raises:
        KernelError: there is none by this name here, or nothing of the agent declares it.
    """
    named = any(reference in reach.declared for reach in reaches)
    if reference.startswith("."):
        static = inspect.getattr_static(type(agent), reference[1:], None)
        if not named and not is_marked(static):
            raise _undeclared(reference)
        method = getattr(agent, reference[1:], None)
        if not callable(method) and not isinstance(method, CompiledStateGraph):
            raise KernelError(f"The agent {type(agent).__qualname__} has no method {reference[1:]}.")
        found: Callable[..., Any] | Graph = method
        return found
    owner, target = _imported(reference) if named else _loaded(reference, reaches)
    if isinstance(target, CompiledStateGraph):
        return target
    function: Callable[..., Any] = target
    if isinstance(owner, type) and isinstance(agent, owner) and inspect.isfunction(target):
        name = reference.rpartition(".")[2]
        if inspect.isfunction(inspect.getattr_static(owner, name)):
            function = getattr(agent, name)
    if not callable(function):
        raise KernelError(f"{reference} is no function and no compiled graph.")
    return function


def takes_key(function: Callable[..., Any]) -> bool:
    """Whether it has a parameter `idempotency_key`."""
    plain = getattr(function, "__func__", function)
    if isinstance(plain, FunctionType) and not plain.__dict__:  # a signature costs a hundred times as much
        code = plain.__code__
        return "idempotency_key" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    try:
        return "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False  # a builtin that does not expose its parameters


def is_marked(target: Any) -> bool:
    """Whether a function or graph has the mark of `kernel_compensation`."""
    target = (
        getattr(target, "__func__", target) if isinstance(target, (staticmethod, classmethod)) else target
    )
    return MARK in getattr(target, "__dict__", {})


def _loaded(reference: str, reaches: Sequence[Reach]) -> tuple[Any, Any]:
    """The owner and the marked object of a name from a log, without importing or executing anything."""
    module, _, path = reference.partition(":")
    owner, target = None, sys.modules.get(module)
    if not any(reach.has_module(module) for reach in reaches):
        raise _undeclared(reference)
    for part in path.split("."):
        owner, target = target, None if target is None else inspect.getattr_static(target, part, None)
    if not is_marked(target):
        raise _undeclared(reference)
    if isinstance(target, (staticmethod, classmethod)):
        target = getattr(owner, path.rpartition(".")[2])
    return owner, target


def _imported(reference: str) -> tuple[Any, Any]:
    """The owner and the object of a name that code of this process gives."""
    module, _, path = reference.partition(":")
    try:
        owner, target = None, import_module(module)
        for part in path.split("."):
            owner, target = target, getattr(target, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise KernelError(
            f"The function {reference} is not here: {error}.",
            hint="Run the worker with the code that the run was started with, or keep the old name.",
        ) from error
    return owner, target


def _undeclared(reference: str) -> KernelError:
    return KernelError(
        f"Nothing of this agent declares {reference[:200]!r} as a compensation: it is not called.",
        hint=_DECLARE,
    )


def _refused(function: Any, what: str) -> KernelError:
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return KernelError(
        f"The compensation of {what} is {name}, which another process could not find by its name.",
        hint="Give a function of a module or a method of the agent: no lambda, closure or partial. A graph "
        "is given by its name: compensate='module:NAME'.",
    )
