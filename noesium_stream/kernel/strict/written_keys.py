"""Static analysis of a node or a routing function: the keys that it writes, the targets that it chooses.

LangGraph does not know which keys a node will write. This module reads the code as a syntax tree and executes
nothing. If a result is not certain it is None, never a guess.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from langgraph.types import Command

from noesium_stream.kernel.strict.function_source import tree_of
from noesium_stream.purity.blame import Origin, call_of, origin_of

Keys = frozenset[str] | None
"""Keys that may be written; None is every key."""

_NONE: frozenset[str] = frozenset()
_DEPTH = 4
_HARMLESS = (
    *(
        ast.Subscript,
        ast.Return,
        ast.Compare,
        ast.UnaryOp,
        ast.BoolOp,
        ast.BinOp,
        ast.IfExp,
        ast.If,
        ast.While,
    ),
    *(ast.For, ast.comprehension, ast.Dict, ast.List, ast.Tuple, ast.FormattedValue, ast.NamedExpr),
)
_READS = frozenset({"get", "keys", "values", "items", "copy"})


def function_of(runnable: Any) -> FunctionType | None:
    """The Python function behind a node's or a branch's runnable, if there is one."""
    function = getattr(runnable, "func", None) or getattr(runnable, "afunc", None) or runnable
    while isinstance(function, partial):
        function = function.func
    if not isinstance(function, FunctionType | MethodType):
        function = call_of(function)
    if isinstance(function, MethodType):
        function = function.__func__
    return function if isinstance(function, FunctionType) else None


def keys_of_type(declared: Any) -> Keys:
    """The fields of a TypedDict, dataclass or pydantic model; none for `NoneType`."""
    if declared is NoneType:
        return _NONE
    if get_origin(declared) in (Union, UnionType):
        return _union(keys_of_type(part) for part in get_args(declared))
    if is_typeddict(declared) or dataclasses.is_dataclass(declared) or hasattr(declared, "model_fields"):
        return frozenset(get_type_hints(declared))
    return None


def written_keys(function: FunctionType | None) -> Keys:
    """The keys that a node writes, from its return values; else from its return annotation."""
    if function is None:
        return None
    keys = _Reader(function, _DEPTH).returned_keys()
    return keys if keys is not None else keys_of_type(_return_type(function))


def selects_one(function: FunctionType | None) -> bool:
    """Whether a routing function certainly returns one destination at a time."""
    if function is None:
        return False
    declared = _return_type(function)
    if declared is not None:
        return _is_one(declared)
    return _Reader(function, _DEPTH).returns_one()


def goes_to_one(function: FunctionType | None) -> bool:
    """Whether each `Command` of a node certainly names at most one destination."""
    if function is None:
        return False
    reader = _Reader(function, _DEPTH)
    targets = [_keyword(call, "goto") for call in reader.calls_of(Command)]
    return bool(targets) and all(target is None or reader.is_one(target) for target in targets)


def makes(function: FunctionType | None, kind: type[Any], keyword: str | None = None) -> bool:
    """Whether the code creates a `Send`, or a `Command` with this keyword."""
    if function is None:
        return False
    calls = _Reader(function, _DEPTH).calls_of(kind)
    return any(keyword is None or _keyword(call, keyword) is not None for call in calls)


def returns_command(function: FunctionType | None) -> bool:
    """Whether the return annotation mentions `Command`."""
    declared = _return_type(function) if function is not None else None
    parts = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    return any(part is Command or get_origin(part) is Command for part in parts)


class _Reader:
    """One function and its syntax tree."""

    def __init__(self, function: FunctionType, depth: int) -> None:
        self._function = function
        self._depth = depth
        self._names = _names(function)
        self.tree = tree_of(function.__code__)
        self._asked: set[str] = set()

    def returned_keys(self) -> Keys:
        """The keys of all return values."""
        values = self._returns()
        return None if values is None else _union(self._keys(value) for value in values)

    def returns_one(self) -> bool:
        """Whether it never returns several destinations."""
        values = self._returns()
        return bool(values) and all(self.is_one(value) for value in values or ())

    def calls_of(self, kind: Any, seen: set[FunctionType] | None = None) -> list[ast.Call]:
        """Calls that create a `kind`, in the function and in functions that it calls by name."""
        seen = set() if seen is None else seen
        if self.tree is None or self._function in seen:
            return []
        seen.add(self._function)
        found = []
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Call):
                continue
            target = self._value(node.func)
            if (get_origin(target) or target) is kind:
                found.append(node)
            elif (called := self._called(target)) is not None:
                found.extend(called.calls_of(kind, seen))
        return found

    def is_one(self, value: ast.expr | None) -> bool:
        """Whether an expression is a single destination."""
        match value:
            case None | ast.Constant() | ast.JoinedStr() | ast.Compare():
                return True
            case ast.IfExp():
                return self.is_one(value.body) and self.is_one(value.orelse)
            case ast.BoolOp():
                return all(self.is_one(part) for part in value.values)
            case ast.Await() | ast.NamedExpr():
                return self.is_one(value.value)
            case ast.Call():
                target = self._value(value.func)
                called = self._called(target)
                return target in (str, bool) or (called is not None and called.returns_one())
            case ast.Name() | ast.Attribute():
                return self._is_one_name(value)
        return False

    def _is_one_name(self, value: ast.Name | ast.Attribute) -> bool:
        if isinstance(self._value(value), str | bool | Enum):
            return True
        assigned = self._assigned(value.id) if isinstance(value, ast.Name) else None
        return bool(assigned) and all(self.is_one(part) for part in assigned or ())

    def _returns(self) -> list[ast.expr | None] | None:
        """The expressions that it returns; None if they are not certain."""
        if self.tree is None:
            return None
        if isinstance(self.tree, ast.Lambda):
            return [self.tree.body]
        nodes = list(_own(self.tree))
        if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes):
            return None
        return [node.value for node in nodes if isinstance(node, ast.Return)] or [None]

    def _keys(self, value: ast.expr | None) -> Keys:
        match value:
            case None | ast.Constant(value=None):
                return _NONE
            case ast.Dict():
                return self._keys_of_dict(value)
            case ast.IfExp():
                return _union((self._keys(value.body), self._keys(value.orelse)))
            case ast.BoolOp():
                return _union(self._keys(part) for part in value.values)
            case ast.BinOp(op=ast.BitOr()):
                return _union((self._keys(value.left), self._keys(value.right)))
            case ast.List() | ast.Tuple():
                return _union(self._keys(part) for part in value.elts)
            case ast.Await() | ast.NamedExpr():
                return self._keys(value.value)
            case ast.Call():
                return self._keys_of_call(value)
            case ast.Name():
                return self._keys_of_name(value.id)
        return None

    def _keys_of_dict(self, value: ast.Dict) -> Keys:
        return _union(
            self._keys(item) if key is None else self._text(key)
            for key, item in zip(value.keys, value.values, strict=True)
        )

    def _keys_of_call(self, call: ast.Call) -> Keys:
        target = self._value(call.func)
        if (get_origin(target) or target) is Command:
            return None if _keyword(call, "graph") is not None else self._keys(_keyword(call, "update"))
        if target is dict or is_typeddict(target):
            named = (self._keys(k.value) if k.arg is None else frozenset({k.arg}) for k in call.keywords)
            return _union((*named, *(self._keys(argument) for argument in call.args)))
        if isinstance(target, type):
            return keys_of_type(target)
        called = self._called(target)
        return called.returned_keys() if called is not None else None

    def _keys_of_name(self, name: str) -> Keys:
        """The keys of a dict that is built in a local variable and passed to no other code."""
        assigned = self._assigned(name)
        if not assigned or name in self._asked:
            return None
        self._asked.add(name)
        try:
            found = [self._keys(value) for value in assigned]
            uses = [node for node in _own(self.tree) if _mentions(node, name)]
            if self._used_within(name):
                return None
            return _union((*found, *(self._keys_of_use(node, name) for node in uses)))
        finally:
            self._asked.discard(name)

    def _used_within(self, name: str) -> bool:
        """Whether a nested function uses the name, and so may change its value."""
        own = set(map(id, _own(self.tree)))
        everywhere = ast.walk(self.tree) if self.tree is not None else ()
        return any(
            isinstance(node, ast.Name) and node.id == name and id(node) not in own for node in everywhere
        )

    def _keys_of_use(self, node: ast.AST, name: str) -> Keys:
        match node:
            case ast.Subscript(ctx=ast.Store()):
                return self._text(node.slice)
            case ast.Assign() | ast.AnnAssign():
                return None if isinstance(node.value, ast.Name) and node.value.id == name else _NONE
            case ast.AugAssign():
                return self._keys(node.value) if isinstance(node.op, ast.BitOr) else None
            case ast.Attribute(attr="update"):
                calls = [n for n in _own(self.tree) if isinstance(n, ast.Call) and n.func is node]
                as_dict = (ast.Call(ast.Name("dict"), call.args, call.keywords) for call in calls)
                return _union(self._keys_of_call(call) for call in as_dict) if calls else None
            case ast.Attribute():
                return _NONE if node.attr in _READS else None
            case ast.Call():
                return _NONE if isinstance(self._value(node.func), type | BuiltinFunctionType) else None
            case ast.keyword():
                return _NONE if node.arg in ("update", None) else None
        return _NONE if isinstance(node, _HARMLESS) else None

    def _assigned(self, name: str) -> list[ast.expr] | None:
        """All expressions assigned to a local name; None if some of them are unknown."""
        if self.tree is None or isinstance(self.tree, ast.Lambda):
            return None
        arguments = self.tree.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        stores = sum(_stores(node, name) for node in _own(self.tree))
        values = []
        for node in _own(self.tree):
            if isinstance(node, ast.Assign):
                values += [node.value for target in node.targets if _stores(target, name)]
            elif isinstance(node, ast.AnnAssign) and node.value is not None and _stores(node.target, name):
                values.append(node.value)
            elif isinstance(node, ast.AugAssign) and _stores(node.target, name):
                stores -= 1
        known = len(values) == stores and not any(parameter.arg == name for parameter in parameters)
        return values if known else None

    def _text(self, key: ast.expr) -> Keys:
        value = key.value if isinstance(key, ast.Constant) else self._value(key)
        return frozenset({value}) if isinstance(value, str) else None

    def _value(self, node: ast.expr) -> Any:
        """The value of a global, a closed-over name or an attribute of one."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            return None if owner is None else inspect.getattr_static(owner, node.attr, None)
        if isinstance(node, ast.Subscript):
            return self._value(node.value)
        return None

    def _called(self, target: Any) -> _Reader | None:
        if not isinstance(target, FunctionType) or self._depth == 0:
            return None
        own = origin_of(target.__code__.co_filename) is Origin.USER
        return _Reader(target, self._depth - 1) if own else None


def _names(function: FunctionType) -> dict[str, Any]:
    names = {**vars(builtins), **function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not yet bound
            names.pop(name, None)
    for name in function.__code__.co_varnames:
        names.pop(name, None)
    return names


def _own(tree: ast.AST | None) -> Iterator[ast.AST]:
    """The nodes of a function's body without those of functions in it."""
    todo = list(getattr(tree, "body", ()))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            todo.extend(ast.iter_child_nodes(node))


def _mentions(node: ast.AST, name: str) -> bool:
    """Whether `name` is a direct part of this node."""
    if isinstance(node, ast.Name):
        return False
    return any(isinstance(child, ast.Name) and child.id == name for child in ast.iter_child_nodes(node))


def _stores(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _union(keys: Any) -> Keys:
    found: set[str] = set()
    for part in keys:
        if part is None:
            return None
        found |= part
    return frozenset(found)


def _return_type(function: Callable[..., Any]) -> Any:
    """The return annotation; None if there is none or it cannot be resolved."""
    try:
        hints = get_type_hints(function)
    except Exception:  # annotations are the user's code: an error means that they are unknown
        return None
    return hints.get("return")


def _is_one(declared: Any) -> bool:
    if get_origin(declared) in (Union, UnionType):
        return all(_is_one(part) for part in get_args(declared))
    if get_origin(declared) is Literal or declared is NoneType:
        return True
    return isinstance(declared, type) and issubclass(declared, str | bool | int | Enum)
