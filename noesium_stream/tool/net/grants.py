"""Whether a call was granted to reach a host."""

from __future__ import annotations

from collections.abc import Sequence

from noesium_stream.errors import ToolPermissionError
from noesium_stream.event.trust.permission import covering
from noesium_stream.tool.net.target import Target


def need_of(target: Target) -> str:
    """The permission that a request to this target needs."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"net:outbound:{host}:{target.port}"


def check_granted(target: Target, granted: Sequence[str]) -> None:
    """Check a target against what a call was granted.

    Raises:
        ToolPermissionError: it does not reach this host.
    """
    need = need_of(target)
    if covering(granted, need) is None:
        raise ToolPermissionError(f"This call was not granted {need}.", hint=f"Grant the agent {need}.")
