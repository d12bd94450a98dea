"""From `MODULE:NAME` to a projection."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any, Final

from noesium_stream.errors import ProjectionLoadError
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.standard_catalogue import standard_catalogue
from noesium_stream.projection.base import AnyProjection, BaseProjection

_SHIPPED: Final = "noesium_stream.projection.shipped"
SHIPPED: Final[Mapping[str, str]] = {
    "execution": f"{_SHIPPED}:ExecutionProjection",
    "cognitive": f"{_SHIPPED}:CognitiveProjection",
    "index": f"{_SHIPPED}:IndexProjection",
}
"""Projections that come with the package, by short names."""


def load_projection(reference: str) -> AnyProjection:
    """Import a projection: `invoices:Invoices`, a subclass of `BaseProjection` or an instance of one.

    The current folder is importable. The names in `SHIPPED` stand for the package's own.

    Raises:
        ProjectionLoadError: there is no such module, it fails to import, or it holds no projection.
    """
    module_name, _, name = SHIPPED.get(reference, reference).partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise ProjectionLoadError(
            f"{reference!r} names no module.",
            hint="Give the projection as MODULE:NAME, importable from the current folder.",
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name is not None
        if missing and f"{module_name}.".startswith(f"{getattr(error, 'name', None)}."):
            raise ProjectionLoadError(
                f"There is no module {module_name!r}.",
                hint="Give the projection as MODULE:NAME, importable from the current folder.",
            ) from error
        raise ProjectionLoadError(
            f"The module {module_name!r} cannot be imported: {type(error).__name__}: {error}",
            hint="Import it with python -c to see the whole traceback.",
        ) from error
    for part in (name or "PROJECTION").split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, BaseProjection):
        found = _made(found, reference)
    if not isinstance(found, BaseProjection):
        raise ProjectionLoadError(
            f"{reference} is no projection.",
            hint="Name a subclass of BaseProjection: MODULE:NAME.",
        )
    found.check()
    return found


def _made(kind: type[AnyProjection], reference: str) -> AnyProjection:
    try:
        return kind()
    except TypeError as error:
        raise ProjectionLoadError(
            f"{reference} cannot be made: {error}.", hint="Implement `initial_state` and `apply`."
        ) from error


def catalogue_for(projection: AnyProjection) -> Catalogue:
    """The standard events and those that the projection names in `events`.

    Raises:
        EventValidationError: two events have one type and version and differ.
    """
    catalogue = standard_catalogue()
    for event in projection.events:
        catalogue.register(event)
    return catalogue
