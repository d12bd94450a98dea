"""The life of a run: one fold over its journal tells whether it has started, what it does, and how it ended.

Decision record: the kernel's history, the list of runs, the tree and the execution projection all show these
facts, and each has a state of its own that is stored or printed with its own order of fields. So `RunLife`
only names the fields, and `evolve` sets them in place. `evolve` says whether an event counts; facts that only
one of these states has are added there, for the events that count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import COMMANDS, caller_of

ENDINGS: Final[Mapping[str, str]] = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
    "command.expired": "expired",
    "command.refused": "refused",
}
"""Terminal event types, and the status that each gives to a run."""

_STATUSES: Final[Mapping[str, str]] = {
    **dict.fromkeys(COMMANDS, "requested"),
    "run.started": "running",
    "run.parked": "stranded",
    "run.resumed": "running",
    "run.migrated": "running",
    "run.compensation.started": "compensating",
    **ENDINGS,
}
LIFE_TYPES: Final = tuple(_STATUSES)
"""Event types that `evolve` takes; it ignores others."""

_OF_OWNER: Final = ("kernel.", "effect.", "run.")


class RunLife:
    """Base of the states that `evolve` changes; their dataclasses declare these fields.

    `status` is `requested`, `running`, `stranded` (no worker carries its graph version: see `reason`),
    `compensating` (its effects are being compensated) or a value of `ENDINGS`; a state may add others for an
    open run. A state without `run_id` gets that of the first command, start or end. Times are milliseconds
    since the epoch.
    """

    run_id: str
    agent_type: str
    agent_version: str | None
    status: str
    reason: str | None
    error: str | None
    result: Any
    requested_ms: int | None
    started_ms: int | None
    ended_ms: int | None


def evolve(life: RunLife, event: EventEnvelope) -> bool:
    """Apply the next event of the run's journal; return whether it counts in the run's life.

    The first command, start and end of the run count. Nothing counts after its end (law 3) but the command,
    which a reader of several journals may meet late. Events of other runs, such as calls by this run or
    records of the run that it is a fork of, do not count.
    """
    status = _STATUSES.get(event.event_type)
    if status is None:
        return False
    payload = event.payload
    if status == "requested":
        return _command(life, event, payload)
    if life.ended_ms is not None or life.run_id not in ("", payload.get("run_id")):
        return False
    if event.event_type == "run.started":
        if life.started_ms is not None:
            return False
        life.run_id, life.started_ms = payload["run_id"], event.timestamp_ms
        life.agent_type, life.error = payload["agent_type"], None
    elif event.event_type in ENDINGS:
        life.run_id, life.ended_ms = payload["run_id"], event.timestamp_ms
        life.error, life.result = payload.get("message"), payload.get("result")
    elif status == "compensating":
        life.error = payload["message"]
    life.status, life.reason = status, payload["reason"] if status == "stranded" else None
    life.agent_version = payload.get("agent_version", life.agent_version)
    return True


def executor_of(life: RunLife, event: EventEnvelope) -> str | None:
    """The process that executes the run, if this event shows it.

    An answer may come from another process of the same agent type, and a process that cannot continue the run
    only reports that.
    """
    producer = event.producer
    if life.started_ms is None or producer.agent_type != life.agent_type:
        return None
    if not event.event_type.startswith(_OF_OWNER) or event.event_type == "run.parked":
        return None
    return producer.instance_id or None


def _command(life: RunLife, event: EventEnvelope, payload: dict[str, Any]) -> bool:
    run_id = payload.get("run_id")
    if life.requested_ms is not None or life.run_id not in ("", run_id) or caller_of(payload) == run_id:
        return False
    life.run_id, life.requested_ms = payload["run_id"], event.timestamp_ms
    life.agent_type = life.agent_type or payload.get("target_agent_type") or payload.get("agent_type") or ""
    return True
