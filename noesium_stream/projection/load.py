"""Resolution of `MODULE:NAME` references to projections."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

from noesium_stream.errors import ProjectionLoadError, brief
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.standard.catalogue import standard_catalogue
from noesium_stream.private_files import permission_advice
from noesium_stream.projection.base import AnyProjection, BaseProjection
from noesium_stream.projection.source_line import with_line

_SHIPPED: Final = "noesium_stream.projection.builtin"
SHIPPED: Final[Mapping[str, str]] = {
    "execution": f"{_SHIPPED}.execution:ExecutionProjection",
    "goals": "noesium_stream.goals.projection:GoalProjection",
    "cognitive": f"{_SHIPPED}.cognitive:CognitiveProjection",
    "index": f"{_SHIPPED}.index:IndexProjection",
}
"""The package's own projections by short name."""


def load_projection(reference: str) -> AnyProjection:
    """Import a projection: `invoices:Invoices`, a subclass of `BaseProjection` or an instance of one.

    Modules in the current folder can be imported. The names in `SHIPPED` refer to the package's own
    projections.

    Raises:
        ProjectionLoadError: there is no such module, its import fails, or it holds no projection.
    """
    module_name, _, name = SHIPPED.get(reference, reference).partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise ProjectionLoadError(
            f"{reference!r} names no module.",
            hint="Give the projection as MODULE:NAME, importable from the current folder.",
        )
    module = found = _imported(module_name, name)
    for part in (name or "PROJECTION").split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, BaseProjection):
        found = _made(found, reference)
    if not isinstance(found, BaseProjection):
        there = ", ".join(_projections_of(module))
        has = f" {module_name} has: {there}." if there else ""
        raise ProjectionLoadError(
            f"{reference} is no projection.", hint=f"Name a subclass of BaseProjection: MODULE:NAME.{has}"
        )
    found.check()
    return found


def _imported(module_name: str, name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name is not None
        if missing and f"{module_name}.".startswith(f"{getattr(error, 'name', None)}."):
            stem = module_name.removesuffix(".py")
            meant = "" if stem == module_name else f": {stem}:{name or 'NAME'}"
            raise ProjectionLoadError(
                f"There is no module {module_name!r}.",
                hint=f"Give the projection as MODULE:NAME, importable from the current folder{meant}.",
            ) from error
        hint = "Import it with python -c to see the whole traceback."
        if isinstance(error, PermissionError) and error.filename:
            hint = permission_advice(os.fsdecode(error.filename))
        raise ProjectionLoadError(
            f"The module {module_name!r} cannot be imported: "
            f"{type(error).__name__}: {with_line(brief(error, 500), error)}",
            hint=hint,
        ) from error


def _projections_of(module: ModuleType) -> list[str]:
    """The names of the projections defined in the module itself."""
    return sorted(
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, BaseProjection)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    )


def _made(kind: type[AnyProjection], reference: str) -> AnyProjection:
    try:
        return kind()
    except Exception as error:
        hint = "Let it be made without arguments; or make one in the module, and name that: MODULE:NAME."
        if inspect.isabstract(kind):
            hint = "Implement `initial_state` and `apply`."
        what = brief(error, 500) if isinstance(error, TypeError) else f"{type(error).__name__}: {error}"
        raise ProjectionLoadError(
            f"{reference} cannot be made: {with_line(what, error)}.", hint=hint
        ) from error


def catalogue_for(projection: AnyProjection) -> Catalogue:
    """The standard events and the events that the projection declares in `events`.

    Raises:
        EventValidationError: two events have the same type and version but differ.
    """
    catalogue = standard_catalogue()
    for event in projection.events:
        catalogue.register(event)
    return catalogue
