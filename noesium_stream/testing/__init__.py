"""For tests of one's own graphs and agents: time that passes by itself, scripts, and crashes on demand.

Loaded when it is first asked for: pytest imports this package in every project that has the plugin installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from noesium_stream.agent import agent_of
    from noesium_stream.testing.clock import AutoClock
    from noesium_stream.testing.hooked import HookedLog
    from noesium_stream.testing.projections import check
    from noesium_stream.testing.rehearsal import Rehearsal, RehearsedRun
    from noesium_stream.testing.script import Call, ScriptedModel

__all__ = [
    "AutoClock",
    "Call",
    "HookedLog",
    "Rehearsal",
    "RehearsedRun",
    "ScriptedModel",
    "agent_of",
    "check",
]

_MODULE_OF: Final = {
    "AutoClock": "noesium_stream.testing.clock",
    "Call": "noesium_stream.testing.script",
    "HookedLog": "noesium_stream.testing.hooked",
    "Rehearsal": "noesium_stream.testing.rehearsal",
    "RehearsedRun": "noesium_stream.testing.rehearsal",
    "ScriptedModel": "noesium_stream.testing.script",
    "agent_of": "noesium_stream.agent",
    "check": "noesium_stream.testing.projections",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
