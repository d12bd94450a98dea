"""List of runs: a fold over the journals' life-cycle events and the commands waiting in the inboxes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from noesium_stream.client.views.waits import Wait
from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import COMMANDS, input_of
from noesium_stream.event.rules.attributes import with_attributes
from noesium_stream.event.rules.labels import label_of
from noesium_stream.event.rules.run_life import LIFE_TYPES, RunLife, evolve
from noesium_stream.event.standard import AttributesSet, RequestParked, RequestResumed
from noesium_stream.event.standard.request import BEHIND
from noesium_stream.log.record import Record
from noesium_stream.log.topics import TopicKind

DEFERRAL_TYPES: Final = (RequestParked.TYPE, RequestResumed.TYPE)
RUN_TYPES: Final = (*LIFE_TYPES, *DEFERRAL_TYPES, AttributesSet.TYPE)
DEFERRED: Final = "deferred"
GOES_ON: Final = ("run.resumed", "run.migrated")


@dataclass(slots=True)
class RunInfo(RunLife):
    """Summary of one run.

    `status` is requested, deferred (no worker can accept its command yet: see `reason`), running, waiting
    (each open task waits, or nobody owns its partition: see `waits_for`), stranded (no worker carries its
    graph version: see `reason`), compensating (it is ending and its effects are being compensated),
    completed, failed, cancelled or expired. `waits_for` also says of a requested run at whose process it
    waits for its turn. `label` is its input in one line, a text or its first fields; empty if it cannot be
    read here. `attributes` are its search attributes, a time as `{"time_ms": …}`. Times are milliseconds
    since the epoch.
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
    waits_for: tuple[Wait, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)


def fold_record(runs: dict[str, RunInfo], record: Record, agent_type: str) -> bool:
    """Fold a record as `fold_runs` does; return whether it could be read.

    An unreadable inbox record, which becomes a dead letter, is passed over, and so is a journal record that
    is wrong. An inbox is written by anyone: its commands count, and nothing else that it says of runs.
    """
    if record.topic.split(".")[3] != TopicKind.INBOX.value:
        try:
            event = record.unchecked
            if event.event_type not in COMMANDS or event.payload.get("run_id") == record.key:
                fold_runs(runs, event, agent_type)  # else it is the caller's own record of its call
        except WRONG as error:
            pass_over(record, error)
            return False
        return True
    try:
        event = record.unchecked
    except CorruptRecordError:
        return False
    payload = event.payload
    asked = payload.get("input", payload.get("arguments", payload.get("payload")))
    if event.event_type in COMMANDS and isinstance(payload.get("run_id"), str) and isinstance(asked, dict):
        fold_runs(runs, event, agent_type)
    return True


def fold_runs(runs: dict[str, RunInfo], event: EventEnvelope, agent_type: str) -> None:
    """Fold one event of the inbox or journal of `agent_type` into `runs`, in place.

    A repeated command changes nothing.
    """
    if event.event_type in COMMANDS:
        _command(runs, event, agent_type)
        return
    if event.event_type in _OF_REQUESTS:
        _OF_REQUESTS[event.event_type](runs, event, agent_type)
        return
    if event.event_type == AttributesSet.TYPE:
        about = runs.get(event.partition_key or "")
        if about is not None and about.ended_ms is None:
            about.attributes = with_attributes(about.attributes, event.payload["attributes"])
        return
    run = runs.get(event.payload["run_id"])
    if run is not None:
        evolve(run, event)


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
        attributes=with_attributes({}, payload.get("attributes")),
    )


def _deferred(runs: dict[str, RunInfo], event: EventEnvelope, agent_type: str) -> None:
    payload = event.payload
    run = runs.get(payload["run_id"])
    if run is None:
        run = RunInfo(payload["run_id"], agent_type, DEFERRED, "", payload["logged_ms"])
    if run.started_ms is None and payload["reason"] != BEHIND:
        runs[run.run_id] = replace(run, status=DEFERRED, reason=payload["reason"], error=None)


def _taken(runs: dict[str, RunInfo], event: EventEnvelope, agent_type: str) -> None:
    payload = event.payload
    run = runs.get(payload["run_id"])
    if run is None or run.status != DEFERRED or run.started_ms is not None:
        return
    refused = payload.get("refused")
    if refused is not None:
        runs[run.run_id] = replace(run, status="failed", reason=None, error=f"a dead letter: {refused}")
    elif run.label or run.root_run_id:
        runs[run.run_id] = replace(run, status="requested", reason=None)
    else:
        del runs[run.run_id]  # the journal copy of its command has more information


_OF_REQUESTS: Final = {RequestParked.TYPE: _deferred, RequestResumed.TYPE: _taken}
