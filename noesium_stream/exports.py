"""Exports of a package that import their modules on first use (PEP 562).

Decision record: importing a module imports the packages around it, so a package that imports all of its
modules makes each of them as slow as the slowest (LangGraph takes half a second). Type checkers read the
imports under `TYPE_CHECKING`, and report a name that is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def submodules(package: str, names: Collection[str]) -> Callable[[str], Any]:
    """Make `__getattr__` of a package whose modules are imported on first use: `package.module.function`."""

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return import_module(f"{package}.{name}")

    return get


def exports(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package.

    Args:
        package: the package's `__name__`.
        modules: the module of each exported name, relative to the package.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    def names() -> list[str]:
        return sorted([*vars(import_module(package)), *modules])

    return get, names
