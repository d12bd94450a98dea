"""Modules that need packages of an extra: imported when they are used, with advice where one is missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from noesium_stream.errors import ConfigError


def import_extra(module: str, extra: str, what: str) -> ModuleType:
    """Import a module.

    Args:
        module: its full name.
        extra: the extra of this package that it needs.
        what: what needs it, for the message.

    Raises:
        ConfigError: a package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(what, error.name, extra) from None


def missing_extra(what: str, package: str | None, extra: str) -> ConfigError:
    """The error about a package that is not installed."""
    return ConfigError(
        f"{what} needs {package}, which is not installed here.",
        hint=f"Install it in the worker's environment: pip install 'noesium-stream[{extra}]'",
    )
