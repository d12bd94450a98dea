"""Test kit for the user's own graphs and agents: virtual time, scripts, and crashes on demand.

Modules load on first use: pytest imports this package in every project that has the plugin installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from noesium_stream.testing.clock import AutoClock
    from noesium_stream.testing.hooked import HookedLog
    from noesium_stream.testing.projections import check_projection
    from noesium_stream.testing.rehearsal import Rehearsal, RehearsedRun
    from noesium_stream.testing.script import Call, ScriptedModel

__all__ = [
    "AutoClock",
    "Call",
    "HookedLog",
    "Rehearsal",
    "RehearsedRun",
    "ScriptedModel",
    "check_projection",
]

_MODULE_OF: Final = {
    "AutoClock": "noesium_stream.testing.clock",
    "Call": "noesium_stream.testing.script",
    "HookedLog": "noesium_stream.testing.hooked",
    "Rehearsal": "noesium_stream.testing.rehearsal",
    "RehearsedRun": "noesium_stream.testing.rehearsal",
    "ScriptedModel": "noesium_stream.testing.script",
    "check_projection": "noesium_stream.testing.projections",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
