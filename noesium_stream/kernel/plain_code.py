"""Whether the code of a node shows that it only computes: nothing happens if it is executed once more.

Its syntax tree is read, and nothing is executed. Only what is known to reach nothing outside is let through:
a function of the state alone, which reads it by keys, uses operators and a few built-in functions, decides,
and returns a dict. A call of anything else, an attribute, an `await`, a change in place: it is not known, and
counts as reaching out. What the operators of values in a state do is taken for computing, as in `state_hash`.

The tree is that of the code which runs: a file that was changed since it was imported shows nothing.
"""

from __future__ import annotations

import ast
import builtins
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

from langgraph._internal._runnable import RunnableCallable

from noesium_stream.kernel.source import Tree, is_in_source, tree_of

_SCALARS: Final = (str, bytes, int, float, bool, type(None))
_FUNCTIONS: Final = (
    *(abs, all, any, bool, dict, divmod, enumerate, float, frozenset, int, isinstance, len, list, max, min),
    *(range, reversed, round, set, sorted, str, sum, tuple, zip),
)
_TYPES: Final = tuple(known for known in _FUNCTIONS if isinstance(known, type))
_KEYWORDS: Final = frozenset({"default", "ndigits", "reverse", "start", "strict"})
_TRANSPARENT: Final = (
    *(ast.BinOp, ast.BoolOp, ast.Compare, ast.Constant, ast.Dict, ast.DictComp, ast.FormattedValue),
    *(ast.GeneratorExp, ast.IfExp, ast.JoinedStr, ast.List, ast.ListComp, ast.NamedExpr, ast.Set),
    *(ast.SetComp, ast.Slice, ast.Tuple, ast.UnaryOp, ast.Assign, ast.If, ast.Pass),
    *(ast.boolop, ast.cmpop, ast.expr_context, ast.operator, ast.unaryop),
)
"""These do nothing but what their parts do."""


def only_computes(bound: Any) -> bool:
    """Whether LangGraph's runnable of a node's body only computes from a state that is a dict.

    False where its code does not show it.
    """
    if type(bound) is not RunnableCallable or bound.kwargs or bound.func_accepts or bound.explode_args:
        return False
    function: Any = bound.func
    if function is None:
        function = bound.afunc
    elif not (isinstance(bound.afunc, partial) and bound.afunc.args == (None, function)):
        return False  # what LangGraph calls is another one
    owned = isinstance(function, MethodType)
    function = function.__func__ if owned else function
    if type(function) is not FunctionType or function.__code__.co_freevars:
        return False
    tree = tree_of(function.__code__)
    if tree is None or not is_in_source(function.__code__):
        return False
    return _Body(function, tree, owned).only_computes()


class _Body:
    """A function and its tree; `owned`: it is a method, and its first parameter the object."""

    def __init__(self, function: FunctionType, tree: Tree, owned: bool) -> None:
        self._tree = tree
        self._globals = function.__globals__
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        takes_more = code.co_kwonlyargcount or code.co_flags & 0x0C  # *args, **kwargs
        self._owner = names[0] if owned and names else None
        given = names[1:] if owned else names
        self._state = given[0] if len(given) == 1 and not takes_more else None
        self._own: set[str] = set()

    def only_computes(self) -> bool:
        """Whether it does."""
        if self._state is None:
            return False
        body = [ast.Return(self._tree.body)] if isinstance(self._tree, ast.Lambda) else self._tree.body
        names = [node for part in body for node in ast.walk(part) if isinstance(node, ast.Name)]
        self._own = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        if self._state in self._own or self._owner in self._own:
            return False
        return all(map(self._harmless, body))

    def _harmless(self, node: ast.AST) -> bool:
        """Whether neither it nor any part of it can reach out."""
        match node:
            case ast.Return():
                fits = node.value is None or _is_update(node.value)
            case ast.Expr():
                return isinstance(node.value, ast.Constant)  # a docstring
            case ast.Call():
                return self._is_known(node) and all(map(self._harmless, _given(node)))
            case ast.Name():
                return isinstance(node.ctx, ast.Store) or self._is_value(node.id)
            case ast.Subscript():
                fits = isinstance(node.ctx, ast.Load)
            case ast.AnnAssign():
                # What a local variable is said to be is not evaluated.
                told = node.value is None or self._harmless(node.value)
                return told and isinstance(node.target, ast.Name)
            case ast.comprehension():
                fits = not node.is_async
            case _:
                fits = isinstance(node, _TRANSPARENT)
        return fits and all(map(self._harmless, ast.iter_child_nodes(node)))

    def _is_known(self, call: ast.Call) -> bool:
        """Whether what is called is known to do nothing outside."""
        if any(keyword.arg not in _KEYWORDS for keyword in call.keywords):
            return False
        match call.func:
            case ast.Name(id=name):
                return name not in self._own and any(self._named(name) is known for known in _FUNCTIONS)
            case ast.Attribute(value=ast.Name(id=name), attr="get"):
                return name == self._state
        return False

    def _is_value(self, name: str) -> bool:
        if name == self._state or name in self._own:
            return True
        value = self._named(name)
        return name != self._owner and (type(value) in _SCALARS or any(value is known for known in _TYPES))

    def _named(self, name: str) -> Any:
        """What a name that is not the function's own stands for; this class where it stands for nothing."""
        return self._globals.get(name, getattr(builtins, name, _Body))


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_update(value: ast.expr) -> bool:
    """Whether an expression is an update of the state, and no runnable that LangGraph would execute."""
    match value:
        case ast.Dict() | ast.Constant(value=None):
            return True
        case ast.IfExp():
            return _is_update(value.body) and _is_update(value.orelse)
    return False
