"""A fingerprint of a projection's code, to detect that it changed while its `version` did not.

It is a hash of the syntax of the class, of its base classes up to `BaseProjection`, and of its earlier
versions, without comments, docstrings and layout. Functions called outside these classes are not included.
Fingerprints are compared only if the same minor version of Python made both, since another one may parse the
same source differently.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap

from noesium_stream.projection.base import AnyProjection, BaseProjection
from noesium_stream.projection.compose import FederatedProjection

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def fingerprint(projection: AnyProjection) -> str | None:
    """The fingerprint of a projection's code; None if its source cannot be read."""
    found = _syntax(projection)
    if found is None:
        return None
    return f"{_PYTHON}:{hashlib.sha256(found.encode()).hexdigest()[:32]}"


def differs(was: str | None, now: str | None) -> bool:
    """Whether two fingerprints are of different code; False if that cannot be decided."""
    if was is None or now is None or was.partition(":")[0] != now.partition(":")[0]:
        return False
    return was != now


def _syntax(projection: AnyProjection) -> str | None:
    if isinstance(projection, FederatedProjection):
        parts = [(name, _syntax(part)) for name, part in projection.parts.items()]
        return None if any(syntax is None for _, syntax in parts) else repr(parts)
    versions: list[type[AnyProjection]] = []
    version: type[AnyProjection] | None = type(projection)
    while version is not None and version not in versions:  # earlier ones fold what lies before a migration
        versions.append(version)
        version = version.previous_version
    own = dict.fromkeys(kind for version in versions for kind in version.__mro__ if _is_own(kind))
    try:
        return "\n".join(map(_dumped, own))
    except (OSError, TypeError, SyntaxError):
        return None


def _is_own(kind: type) -> bool:
    return issubclass(kind, BaseProjection) and kind is not BaseProjection


def _dumped(kind: type) -> str:
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)
