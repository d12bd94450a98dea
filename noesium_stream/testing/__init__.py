"""For tests of one's own graphs and agents: time that passes by itself, scripts, and crashes on demand."""

from noesium_stream.agent import agent_of
from noesium_stream.testing.clock import AutoClock
from noesium_stream.testing.hooked import HookedLog
from noesium_stream.testing.rehearsal import Rehearsal, RehearsedRun
from noesium_stream.testing.script import Call, ScriptedModel

__all__ = ["AutoClock", "Call", "HookedLog", "Rehearsal", "RehearsedRun", "ScriptedModel", "agent_of"]
