"""Python source: docstrings and code under their qualified names, by `ast`; nothing is executed.

A function gives two blocks: signature with docstring, and body. A file that does not parse (another
Python, a template) is read as plain text.
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings

from agents.documents.blocks import Block, Document, lines_block
from agents.documents.decoding import decode, split_lines
from agents.documents.parsers.text import paragraphs

_Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def parse(data: bytes, path: str) -> Document:
    """Blocks headed by qualified names; the title is the dotted module name and its first line."""
    lines = split_lines(decode(data, _declared(data)))
    module = path.rsplit(".", 1)[0].replace("/", ".").removesuffix(".__init__")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Document(module, paragraphs(lines, 1, len(lines), ()), note="not valid Python, read as text")
    summary = (ast.get_docstring(tree) or "").strip().split("\n", 1)[0].rstrip(".")
    blocks = [block for block in _Scoped(lines).of(tree, (), 1, len(lines)) if any(block.lines)]
    title = f"{module}: {summary}"[:160] if summary else module
    return Document(title, blocks, syntax="python")


class _Scoped:
    """Cuts the lines of a module, class or function along its definitions."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def of(self, scope: _Scope, names: tuple[str, ...], first: int, last: int) -> list[Block]:
        """The blocks of file lines `first` to `last`, which are those of `scope`."""
        blocks: list[Block] = []
        at = first
        body = scope.body
        if _has_docstring(body):
            end = body[0].end_lineno or at
            blocks.append(lines_block(self.lines, at, end, names, alone=True))
            at = end + 1
        elif names and body:
            # the signature alone still tells what there is
            head = max(at, body[0].lineno - 1)
            if not isinstance(scope, ast.ClassDef) and body[0].lineno > at:
                blocks.append(lines_block(self.lines, at, head, names))
                at = head + 1
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and self._is_worth(
                node, scope
            ):
                start = min([node.lineno, *(item.lineno for item in node.decorator_list)])
                blocks += self._plain(at, start - 1, names)
                end = node.end_lineno or node.lineno
                if start >= at:
                    blocks += self.of(node, (*names, node.name), start, end)
                    at = end + 1
        return blocks + self._plain(at, last, names)

    def _is_worth(self, node: ast.stmt, scope: _Scope) -> bool:
        """Whether a definition gets a heading of its own: not helpers inside of functions."""
        return isinstance(scope, ast.Module | ast.ClassDef)

    def _plain(self, first: int, last: int, names: tuple[str, ...]) -> list[Block]:
        blocks = paragraphs(self.lines, first, last, names)
        for block in blocks:
            block.kind = "code" if not _is_comment(block.lines) else ""
        return blocks


def _is_comment(lines: list[str]) -> bool:
    return all(line.lstrip().startswith("#") for line in lines if line.strip())


def _has_docstring(body: list[ast.stmt]) -> bool:
    return (
        bool(body)
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    )


def _declared(data: bytes) -> str | None:
    """The encoding that a coding line names."""
    try:
        return tokenize.detect_encoding(io.BytesIO(data[:400]).readline)[0]
    except (SyntaxError, UnicodeDecodeError):
        return None
