"""What a tool knows about the call that it serves (RFC-2003 §10.2, RFC-2004)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from noesium_stream.event.envelope import TraceContext


class Mode(StrEnum):
    """What an agent may do with its tools, from the least to the most.

    ASK: read only.
    PLAN: as ASK; what it may not do is kept as its plan.
    ACT: what it is granted; external calls wait for a person, where no rule says otherwise.
    AUTO: what it is granted; a person is asked only where a rule says so.
    """

    ASK = "ask"
    PLAN = "plan"
    ACT = "act"
    AUTO = "auto"


def _nothing(done: float, total: float | None, message: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class ToolContext:
    """One call of a tool: who makes it, and within which limits.

    Attributes:
        agent_id: the agent that calls.
        working_directory: the agent's workspace; a tool touches no file outside it.
        granted_permissions: what the call may do (see `event/trust/permission.py`): a tool that starts other
            programs builds the walls from these, and never from what it asked for itself.
        timeout_ms: after this many milliseconds nobody waits any more.
        run_id, trace: of the run that calls; None outside a run.
        call_id: the id of the call, and its stable idempotency key: the same text whenever this very call is
            repeated. None outside a run.
        mode: see `Mode`.
        progress: takes progress from 0 to a total (None: not known) and a text for people.
    """

    agent_id: str
    working_directory: Path
    granted_permissions: tuple[str, ...] = ()
    timeout_ms: int = 30_000
    run_id: str | None = None
    call_id: str | None = None
    trace: TraceContext | None = None
    mode: Mode = Mode.ACT
    progress: Callable[[float, float | None, str], None] = field(default=_nothing, compare=False, repr=False)
