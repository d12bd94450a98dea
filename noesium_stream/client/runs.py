"""What runs there are: a fold over the journals' life-cycle events (and the inboxes' waiting commands)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.calls import COMMANDS, input_of, label_of
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import RequestParked, RequestResumed
from noesium_stream.event.standard.request import BEHIND
from noesium_stream.log.record import Record
from noesium_stream.log.topics import TopicKind

PARKED_TYPES: Final = (RequestParked.TYPE, RequestResumed.TYPE)
RUN_TYPES: Final = (
    *COMMANDS,
    *PARKED_TYPES,
    "run.started",
    "run.parked",
    "run.resumed",
    "run.migrated",
    "run.compensation.started",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "command.expired",
)
GOES_ON: Final = ("run.resumed", "run.migrated")
ENDED: Final = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
    "command.expired": "expired",
}


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One run at a glance.

    `status` is requested, running, parked (its worker does not carry its graph, or cannot take its command:
    `reason`), compensating (it is ending, and what it did is being undone), completed, failed, cancelled or
    expired. `label` is what it was asked, in one line; empty where nobody here can read that. Times are
    milliseconds since the epoch.
    """

    run_id: str
    agent_type: str
    status: str
    label: str
    requested_ms: int
    agent_version: str | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    error: str | None = None
    result: Any = None
    parent_run_id: str | None = None
    root_run_id: str | None = None
    reason: str | None = None


def fold_record(runs: dict[str, RunInfo], record: Record, agent_type: str) -> None:
    """As `fold_runs`. A record of an inbox that cannot be read is no run: its owner makes it a dead letter.

    Raises:
        CorruptRecordError: a journal's record cannot be decoded.
    """
    if record.topic.split(".")[3] != TopicKind.INBOX.value:
        fold_runs(runs, record.unchecked, agent_type)
        return
    try:
        event = record.unchecked
    except CorruptRecordError:
        return
    asked = event.payload.get("input", event.payload.get("arguments"))
    if isinstance(event.payload.get("run_id"), str) and isinstance(asked, dict):
        fold_runs(runs, event, agent_type)


def fold_runs(runs: dict[str, RunInfo], event: EventEnvelope, agent_type: str) -> None:
    """Take one event of `agent_type`'s inbox or journal; `runs` is changed in place.

    The first terminal event of a run wins; a repeated command changes nothing.
    """
    payload = event.payload
    if event.event_type in COMMANDS:
        _command(runs, event, agent_type)
        return
    if event.event_type in _OF_REQUESTS:
        _OF_REQUESTS[event.event_type](runs, event, agent_type)
        return
    run = runs.get(payload["run_id"])
    if run is None or run.ended_ms is not None:
        return
    if event.event_type == "run.started":
        runs[run.run_id] = replace(
            run,
            status="running",
            agent_version=payload["agent_version"],
            started_ms=event.timestamp_ms,
            reason=None,
            error=None,
        )
    elif event.event_type == "run.parked":
        runs[run.run_id] = replace(run, status="parked", reason=payload["reason"])
    elif event.event_type in GOES_ON:
        version = payload.get("agent_version", run.agent_version)
        runs[run.run_id] = replace(run, status="running", reason=None, agent_version=version)
    elif event.event_type == "run.compensation.started":
        runs[run.run_id] = replace(run, status="compensating", reason=None, error=payload["message"])
    elif event.event_type in ENDED:
        runs[run.run_id] = replace(
            run,
            status=ENDED[event.event_type],
            reason=None,
            ended_ms=event.timestamp_ms,
            error=payload.get("message"),
            result=payload.get("result"),
        )


def _command(runs: dict[str, RunInfo], event: EventEnvelope, agent_type: str) -> None:
    payload = event.payload
    run_id = payload.get("run_id")
    if payload.get("target_agent_type", agent_type) != agent_type or run_id is None or run_id in runs:
        return  # the caller's own record of its call, or a repetition
    runs[run_id] = RunInfo(
        run_id=run_id,
        agent_type=agent_type,
        status="requested",
        label=label_of(input_of(payload)),
        requested_ms=event.timestamp_ms,
        parent_run_id=payload.get("caller_run_id"),
        root_run_id=event.correlation_id,
    )


def _parked(runs: dict[str, RunInfo], event: EventEnvelope, agent_type: str) -> None:
    payload = event.payload
    run = runs.get(payload["run_id"])
    if run is None:
        run = RunInfo(payload["run_id"], agent_type, "parked", "", payload["logged_ms"])
    if run.started_ms is None and payload["reason"] != BEHIND:
        runs[run.run_id] = replace(run, status="parked", reason=payload["reason"], error=None)


def _taken(runs: dict[str, RunInfo], event: EventEnvelope, agent_type: str) -> None:
    payload = event.payload
    run = runs.get(payload["run_id"])
    if run is None or run.status != "parked" or run.started_ms is not None:
        return
    refused = payload.get("refused")
    if refused is not None:
        runs[run.run_id] = replace(run, status="failed", reason=None, error=f"a dead letter: {refused}")
    elif run.label or run.root_run_id:
        runs[run.run_id] = replace(run, status="requested", reason=None)
    else:
        del runs[run.run_id]  # the copy of its command says more


_OF_REQUESTS: Final = {RequestParked.TYPE: _parked, RequestResumed.TYPE: _taken}
