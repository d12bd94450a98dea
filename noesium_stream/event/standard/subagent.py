"""Lives of command-line sub-agents (RFC-0005, sub-agent lifecycle)."""

from __future__ import annotations

from typing import Literal

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Name, Text

SubagentStateName = Literal["CREATED", "RUNNING", "BUSY", "IDLE", "TERMINATED"]


class SubagentStateChanged(StandardEvent, event_type="subagent.state"):
    """The process of a session's sub-agent was started for a run, or killed in the middle of its request.

    That it is BUSY and IDLE is said by the effects of the runs that call it.
    """

    run_id: Identifier
    session: Name
    previous: SubagentStateName
    state: SubagentStateName
    reason: Text
