"""The source of functions that run: their syntax trees."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from types import CodeType
from typing import Any

Tree = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@lru_cache(maxsize=100)
def _module(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


@lru_cache(maxsize=1_000)
def tree_of(code: CodeType) -> Tree | None:
    """The syntax tree of a function; None if its source is not available."""
    module = _module(code.co_filename)
    nodes = ast.walk(module) if module is not None else ()
    found: list[Any] = [node for node in nodes if _matches(node, code)]
    if len(found) > 1:
        # Several lambdas on one line: the columns of its instructions show which one it is.
        columns = [place[2] for place in code.co_positions() if place[0] and place[2]]
        found = [node for node in found if _contains(node, columns)]
    return found[0] if len(found) == 1 else None


def _matches(node: ast.AST, code: CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name != code.co_name:
        return False
    return code.co_firstlineno in (node.lineno, *(decorator.lineno for decorator in node.decorator_list))


def _contains(node: Any, columns: list[int]) -> bool:
    end = node.body.end_col_offset if node.body.end_lineno == node.body.lineno else None
    return all(node.body.col_offset <= column and (end is None or column < end) for column in columns)
