"""Conditions of tool rules: a small expression over the arguments of a call.

    cents > 5000 and currency == "EUR"
    not to in ["alice", "bob"]
    len(recipients) > 10 or "*" in recipients
    order.address.country != "DE"

Names are arguments, and fields of them behind a dot. There are comparisons, `and`, `or`, `not`, `in`, and the
functions `len` and `lower`; nothing else. The form is that of Python's expressions, of which the parser
serves; nothing is ever executed as Python.

A condition that cannot be judged holds: an argument is missing, or has another type than it is compared with.

Record: CEL was looked at. Of its two kept implementations in Python one brings a command line of its own with
it at import, and neither bounds what a comprehension costs.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from noesium_stream.errors import ConfigError, brief
from noesium_stream.event.envelope_fields import short

MAX_CONDITION: Final = 1_000
"""Characters of a condition."""

_MAX_DEPTH: Final = 30
_Value = Callable[[Mapping[str, Any]], Any]
_Judged = Callable[[Any, Any], bool]


class _UnclearError(Exception):
    """The condition cannot be judged for these arguments."""


def holds(condition: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a condition holds for the arguments of a call, or cannot be judged for them.

    Raises:
        ConfigError: it is no condition.
    """
    return judged(condition, arguments) is not False


def judged(condition: str, arguments: Mapping[str, Any]) -> bool | None:
    """Whether a condition holds for arguments; None: it cannot be judged for them.

    Raises:
        ConfigError: it is no condition.
    """
    try:
        return _truth(compiled(condition)(arguments))
    except _UnclearError:
        return None


def names_in(condition: str) -> frozenset[str]:
    """The arguments that a condition names.

    Raises:
        ConfigError: it is no condition.
    """
    compiled(condition)
    nodes = ast.walk(ast.parse(condition.strip(), mode="eval"))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(names - set(_FUNCTIONS) - set(_CONSTANTS))


@lru_cache(1_024)
def compiled(condition: str) -> _Value:
    """Read a condition.

    Raises:
        ConfigError: it is none.
    """
    if len(condition) > MAX_CONDITION:
        raise ConfigError(f"A condition has over {MAX_CONDITION} characters.")
    try:
        return _compiled(ast.parse(condition.strip(), mode="eval").body, _MAX_DEPTH)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else brief(error, 100)
        raise ConfigError(
            f"{short(condition)} is no condition: {reason}.",
            hint="See `noesium guide permission` for what a condition may say.",
        ) from None


def _compiled(node: ast.expr, depth: int) -> _Value:
    if depth == 0:
        raise ValueError("it is nested too deep")
    make = _MAKERS.get(type(node))
    if make is None:
        raise ValueError(f"it may not contain {ast.unparse(node)[:60]!r}")
    return make(node, depth - 1)


def _constant(node: ast.Constant, depth: int) -> _Value:
    value = node.value
    if not isinstance(value, str | int | float) and value is not None:
        raise ValueError(f"it may not contain {value!r:.60}")
    return lambda arguments: value


def _list(node: ast.List | ast.Tuple, depth: int) -> _Value:
    items = [_compiled(item, depth) for item in node.elts]
    return lambda arguments: [item(arguments) for item in items]


def _name(node: ast.Name, depth: int) -> _Value:
    name = node.id
    if name in _CONSTANTS:
        return lambda arguments: _CONSTANTS[name]
    return lambda arguments: _field(arguments, name)


def _attribute(node: ast.Attribute, depth: int) -> _Value:
    whole, name = _compiled(node.value, depth), node.attr
    return lambda arguments: _field(whole(arguments), name)


def _field(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping) or name not in value:
        raise _UnclearError
    return value[name]


def _both(node: ast.BoolOp, depth: int) -> _Value:
    parts = [_compiled(part, depth) for part in node.values]
    every = all if isinstance(node.op, ast.And) else any
    return lambda arguments: every(_truth(part(arguments)) for part in parts)


def _unary(node: ast.UnaryOp, depth: int) -> _Value:
    part = _compiled(node.operand, depth)
    if isinstance(node.op, ast.Not):
        return lambda arguments: not _truth(part(arguments))
    if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return lambda arguments: -_number(part(arguments))
    raise ValueError("it may not calculate")


def _compare(node: ast.Compare, depth: int) -> _Value:
    parts = [_compiled(part, depth) for part in (node.left, *node.comparators)]
    judges = [_judge_of(one) for one in node.ops]

    def compared(arguments: Mapping[str, Any]) -> bool:
        values = [part(arguments) for part in parts]
        return all(judge(values[at], values[at + 1]) for at, judge in enumerate(judges))

    return compared


def _call(node: ast.Call, depth: int) -> _Value:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in _FUNCTIONS or len(node.args) != 1 or node.keywords:
        raise ValueError(f"it may not call {ast.unparse(node)[:60]!r}")
    function, part = _FUNCTIONS[name], _compiled(node.args[0], depth)
    return lambda arguments: function(part(arguments))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _UnclearError
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnclearError
    return value


def _length(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise _UnclearError
    return len(value)


def _lower(value: Any) -> str:
    if not isinstance(value, str):
        raise _UnclearError
    return value.lower()


def _equal(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    if _kind(left) is not _kind(right):
        raise _UnclearError
    return bool(left == right)


def _within(item: Any, whole: Any) -> bool:
    if isinstance(whole, str) and isinstance(item, str):
        return item in whole
    if isinstance(whole, dict) and isinstance(item, str):
        return item in whole
    if not isinstance(whole, list):
        raise _UnclearError
    if any(_kind(one) is _kind(item) and one == item for one in whole):
        return True
    if any(_kind(one) is not _kind(item) for one in whole):
        raise _UnclearError
    return False


def _kind(value: Any) -> type:
    """The type of a JSON value; there is one of numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float
    return type(value)


def _judge_of(op: ast.cmpop) -> _Judged:
    if type(op) in _ORDERS:
        order = _ORDERS[type(op)]
        return lambda left, right: bool(order(*_ordered(left, right)))
    if type(op) in _JUDGES:
        return _JUDGES[type(op)]
    raise ValueError("it may compare with ==, !=, <, <=, >, >=, in and not in")


def _ordered(left: Any, right: Any) -> tuple[Any, Any]:
    if isinstance(left, str) and isinstance(right, str):
        return left, right
    return _number(left), _number(right)


_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {"len": _length, "lower": _lower}
_ORDERS: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_JUDGES: Final[dict[type[ast.cmpop], _Judged]] = {
    ast.Eq: _equal,
    ast.NotEq: lambda left, right: not _equal(left, right),
    ast.In: _within,
    ast.NotIn: lambda left, right: not _within(left, right),
}
_MAKERS: Final[dict[type[ast.expr], Callable[[Any, int], _Value]]] = {
    ast.Attribute: _attribute,
    ast.BoolOp: _both,
    ast.Call: _call,
    ast.Compare: _compare,
    ast.Constant: _constant,
    ast.List: _list,
    ast.Name: _name,
    ast.Tuple: _list,
    ast.UnaryOp: _unary,
}
