"""Variables of the environment whose names are close to those of settings."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Final

from noesium_stream.cli.output import note
from noesium_stream.config import PREFIX, VARIABLES

_CLOSE: Final = 0.88
_OTHER_VARIABLES: Final = (
    "NOESIUM_CACHE",
    "NOESIUM_CERTIFICATES",
    "NOESIUM_DEBUG",
    "NOESIUM_KEY_PASSWORD",
    *(
        f"NOESIUM_KAFKA_{name}"
        for name in (
            *("SECURITY", "MECHANISM", "USERNAME", "PASSWORD", "TOKEN_URL", "SCOPE", "CA", "CERT", "KEY"),
            *("KEY_PASSWORD", "NEW_PASSWORD", "REPLICATION", "IMAGE", "PORT", "MTLS_PORT", "SASL_PORT"),
        )
    ),
    *(f"NOESIUM_SCHEMA_REGISTRY_{name}" for name in ("CA", "CERT", "KEY", "USERNAME", "PASSWORD")),
)
"""Variables that are no settings: secrets, and those of deployments."""


def note_misspelt_variables() -> None:
    """Print a line for each variable of this process that is misspelt."""
    for name, meant in misspelt_variables(os.environ).items():
        note(f"{name} means nothing here; {meant} does")


def misspelt_variables(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that nothing reads and whose names are close to one that is read.

    Returns that name by the variable's. Others may belong to an agent or a deployment.
    """
    known = {*VARIABLES.values(), *_OTHER_VARIABLES}
    found = {}
    for name in sorted(env):
        if name.startswith(PREFIX) and name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)
            if close and not name.startswith(f"{close[0]}_"):
                found[name] = close[0]
    return found
