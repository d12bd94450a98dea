"""What the code of one graph can name: a name that is read from its journals may stand for nothing else.

A worker carries several agents, and a journal of one of them must not call what another one declares. Code
can name what the modules of its nodes and of its agent hold as globals, and what those modules hold in turn.

Values of the state are built only from classes that the graph's schemas mention (`typed_json`).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final, get_args, get_origin, get_type_hints

from langgraph.graph.state import CompiledStateGraph, StateGraph
from langgraph.pregel import Pregel
from pydantic import BaseModel

_PACKAGE: Final = __name__.partition(".")[0]
_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType, MethodType, type)
_NO_CLASS: Final = frozenset({"abc", "builtins", "collections", "enum", "pydantic.main", "types", "typing"})
"""Modules of bases that nearly every class has: an annotation with one of them mentions no class."""


class Reach:
    """What one graph's code can name; found out when it is first asked for.

    Args:
        graph: a compiled graph with its subgraphs.
        owner: the class of its agent, if it has one.

    Attributes:
        declared: references of the compensations that its nodes and its agent name.
    """

    def __init__(self, graph: Pregel[Any, Any, Any, Any], owner: type | None = None) -> None:
        self.declared: Final[set[str]] = set()
        self._graph = graph
        self._owner = owner
        self._modules: frozenset[str] = frozenset()
        self._loaded = 0
        self._mentioned: frozenset[type] | None = None
        self._builds: dict[type, bool] = {}

    def has_module(self, name: str) -> bool:
        """Whether the graph's code imports this module, directly or through others."""
        if name not in self._modules and self._loaded != len(sys.modules):
            self._loaded = len(sys.modules)  # a node may have imported more since
            self._modules = _closure(self._own_modules())
        return name in self._modules

    def builds(self, cls: type) -> bool:
        """Whether the graph's schemas mention this class or a base of it."""
        known = self._builds.get(cls)
        if known is None:
            if self._mentioned is None:
                self._mentioned = frozenset(_mentioned(_schemas(self._graph, set())))
            known = self._builds[cls] = not self._mentioned.isdisjoint(cls.__mro__)
        return known

    def _own_modules(self) -> Iterator[str]:
        for base in () if self._owner is None else self._owner.__mro__:
            if base.__module__.partition(".")[0] != _PACKAGE:
                yield base.__module__
        yield from _modules_of_nodes(self._graph, set())


def _closure(start: Iterator[str]) -> frozenset[str]:
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name not in found and isinstance(module, ModuleType):
            found.add(name)
            waiting.extend(_named_by(module) - found)
    return frozenset(found)


def _named_by(module: ModuleType) -> set[str]:
    """The modules that a module's globals are, or come from."""
    found: set[str] = set()
    for value in tuple(vars(module).values()):
        if isinstance(value, ModuleType):
            found.add(value.__name__)
        elif isinstance(value, StateGraph | CompiledStateGraph):
            found.update(_modules_of_nodes(value, set()))
        elif isinstance(value, _FUNCTIONS):
            found.add(_module_of(value))
        else:
            found.add(_module_of(type(value)))
    return found


def _module_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    # Not `getattr`: an object from elsewhere may run code of its own, or have something else there.
    module = getattr(function, "__module__", None) if isinstance(function, _FUNCTIONS) else None
    return module if isinstance(module, str) else ""


def _modules_of_nodes(graph: Any, seen: set[int]) -> Iterator[str]:
    seen.add(id(graph))
    for node in graph.nodes.values():
        bound = getattr(node, "bound", None) or getattr(node, "runnable", None)
        for body in ("func", "afunc"):
            function = getattr(bound, body, None)
            yield _module_of(function if isinstance(function, partial | FunctionType) else _plain(function))
        for inner in getattr(node, "subgraphs", ()):
            if id(inner) not in seen:
                yield from _modules_of_nodes(inner, seen)
    builder = graph if isinstance(graph, StateGraph) else getattr(graph, "builder", None)
    for schema in getattr(builder, "schemas", ()):
        yield _module_of(schema)


def _plain(function: Any) -> Any:
    """The function of a method, or the class of an object that is called."""
    if isinstance(function, _FUNCTIONS):
        return function
    return type(function)


def _schemas(graph: Any, seen: set[int]) -> Iterator[Any]:
    seen.add(id(graph))
    builder = getattr(graph, "builder", None)
    yield from getattr(builder, "schemas", ())
    for node in graph.nodes.values():
        for inner in getattr(node, "subgraphs", ()):
            if id(inner) not in seen:
                yield from _schemas(inner, seen)


def _mentioned(annotations: Iterator[Any]) -> set[type]:
    """The classes in these annotations, and in those of their fields."""
    found: set[type] = set()
    seen: set[int] = set()
    waiting = list(annotations)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, str | int | float):
            continue
        seen.add(id(one))
        waiting.extend(_parts(one))
        cls = get_origin(one) or one
        if isinstance(cls, type) and cls.__module__ not in _NO_CLASS:
            found.add(cls)
            waiting.extend(_fields(cls))
    return found


def _parts(annotation: Any) -> Iterator[Any]:
    """What a union, a generic, an alias, a type variable or a new type is made of."""
    yield from get_args(annotation)
    for name in ("__value__", "__bound__", "__supertype__", "__origin__"):
        inner = None if isinstance(annotation, type) else getattr(annotation, name, None)
        if inner is not None:
            yield inner
    yield from () if isinstance(annotation, type) else getattr(annotation, "__constraints__", ())


def _fields(cls: type) -> Iterator[Any]:
    if issubclass(cls, BaseModel):
        yield from (field.annotation for field in cls.model_fields.values())
    elif dataclasses.is_dataclass(cls) or hasattr(cls, "__annotations__"):
        try:
            yield from get_type_hints(cls, include_extras=True).values()
        except (NameError, TypeError, AttributeError):
            return  # a name that only a type checker knows
