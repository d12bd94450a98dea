"""Agents that come with the package: `agents.researcher`, `agents.assistant`, `agents.librarian` and others.

Decision record: their modules are `agents.*`, in a clone and in a wheel alike, because a run is pinned to a
fingerprint that names functions of its graph by module. But the wheel installs no package `agents`: people
have a folder of that name for agents of their own, and other distributions install such a package
(`openai-agents`). So the wheel carries the modules as files that nobody can import by accident, in the folder
`shipped` of this package (`deploy/wheel.py`), and a reference that names one of them lends it to the package
`agents`, as its last place to look. Whatever a package `agents` here has itself goes first. The shipped
modules import each other: if another one hides a part of them, the reference is refused, since a mixture
would run.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from noesium_stream.errors import AgentLoadError

PACKAGE: Final = "agents"
_ROOT: Final = Path(__file__).parent
_PLACES: Final = (_ROOT / "shipped", _ROOT.parent)
"""The folder of a wheel; that of a clone."""
_KNOWN: Final = "researcher"
_TOGETHER: Final = ("documents", "librarian", "researcher")
"""The parts that import each other."""


def shipped_folder() -> Path | None:
    """The folder that has the shipped package `agents`; None: it is not installed."""
    found = (place for place in _PLACES if (place / PACKAGE / _KNOWN / "__init__.py").is_file())
    return next(found, None)


def lend(name: str) -> bool:
    """Make a shipped module importable; False: no such module is shipped.

    Raises:
        AgentLoadError: other modules here hide a part of it.
    """
    folder = shipped_folder()
    if folder is None or not name.startswith(f"{PACKAGE}.") or not _has(folder, name):
        return False
    package = _package_here()
    if package is None:
        sys.path.append(str(folder))
        importlib.invalidate_caches()
        return True
    shipped = str(folder / PACKAGE)
    _refuse_a_mixture(name, package, shipped)
    if shipped not in package.__path__:
        package.__path__ = [*package.__path__, shipped]
    return True


def _has(folder: Path, name: str) -> bool:
    path = folder.joinpath(*name.split("."))
    return (path / "__init__.py").is_file() or path.with_suffix(".py").is_file()


def _package_here() -> ModuleType | None:
    try:
        return importlib.import_module(PACKAGE)
    except ModuleNotFoundError as error:
        if error.name != PACKAGE:
            raise
        return None


def _refuse_a_mixture(name: str, package: ModuleType, shipped: str) -> None:
    where = getattr(package, "__file__", None) or next(iter(getattr(package, "__path__", [])), PACKAGE)
    hint = "Work in another folder, or give the other one another name."
    if not hasattr(package, "__path__"):
        raise AgentLoadError(f"{name} comes with the package, but is hidden here by {where}.", hint=hint)
    for part in _TOGETHER if name.split(".")[1] in _TOGETHER else ():
        found = importlib.util.find_spec(f"{PACKAGE}.{part}")
        if found is not None and not str(found.origin).startswith(shipped):
            raise AgentLoadError(
                f"{name} comes with the package and needs its own {PACKAGE}.{part}, which {where} hides.",
                hint=hint,
            )
