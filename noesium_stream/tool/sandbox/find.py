"""Finds a sandbox on this machine; where there is none, nothing is executed, and never a bare process."""

from __future__ import annotations

from noesium_stream.errors import SandboxError
from noesium_stream.tool.sandbox.bubblewrap import find_bubblewrap
from noesium_stream.tool.sandbox.port import Sandbox


def find_sandbox(name: str | None = None) -> Sandbox:
    """The sandbox of this machine.

    Args:
        name: of the provider, `bubblewrap`; None: the first that works here.

    Raises:
        SandboxError: there is none; says what to install.
    """
    if name is not None and name != "bubblewrap":
        raise SandboxError(f"There is no sandbox {name[:100]!r}.", hint="There is bubblewrap.")
    return find_bubblewrap()
