"""A run's life and its nodes, as `ExecutionProjection` folds them from the run's journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from noesium_stream.event.calls import caller_of, input_of, label_of
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.shipped.execution_state import (
    ENDINGS,
    NodeCounts,
    PendingApproval,
    PendingTimer,
    RunState,
    Task,
)

_OWNER_ALONE: Final = ("kernel.", "effect.", "run.")


def commanded(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    """What made the run; a repeated command changes nothing."""
    if run.requested_ms is not None:
        return
    run.agent_type = payload.get("target_agent_type") or payload.get("agent_type") or ""
    run.label = label_of(input_of(payload))
    run.requested_ms = event.timestamp_ms
    run.parent_run_id = payload.get("caller_run_id")
    run.root_run_id = event.correlation_id


def follow_owner(run: RunState, event: EventEnvelope) -> None:
    """Count the processes that went on with the run."""
    producer = event.producer
    if run.started_ms is None or producer.agent_type != run.agent_type or not producer.instance_id:
        return
    if not event.event_type.startswith(_OWNER_ALONE) or event.event_type == "run.parked":
        return  # an answer may come from another process of the same agent type
    if run.instance and producer.instance_id != run.instance:
        run.takeovers += 1
    run.instance = producer.instance_id


def settle_status(run: RunState) -> None:
    """Say whether a run that is under way does something, or only waits."""
    if run.status not in ("running", "waiting"):
        run.waits_for = []
        return
    waits, busy = _waits(run)
    under_way = [task for task in run.tasks.values() if task.status == "running"]
    busy.update(_key(task) for task in under_way if _key(task) not in waits and not _holds_others(run, task))
    only_waits = bool(waits) and not busy
    run.status = "waiting" if only_waits else "running"
    run.waits_for = sorted({kind for kinds in waits.values() for kind in kinds}) if only_waits else []


def task_of(run: RunState, event: EventEnvelope) -> str | None:
    """The open task that caused an event; else the last one that was entered."""
    for key, task in run.tasks.items():
        if task.entered_id == event.causation_id:
            return key
    return next(reversed(run.tasks), None)


def _waits(run: RunState) -> tuple[dict[str, set[str]], set[str]]:
    """What each open task waits for, and which tasks do something besides."""
    waits: dict[str, set[str]] = {}
    busy: set[str] = set()
    for kind, found in (("approval", run.approvals), ("timer", run.timers)):
        for one in found.values():
            waits.setdefault(one.task or "", set()).add(kind)
    for asking in run.open_calls.values():
        waits.setdefault(asking or "", set()).add("call")
    for effect in run.open_effects.values():
        if effect.status == "running":
            busy.add(effect.task or "")
        else:
            waits.setdefault(effect.task or "", set()).add("effect")
    for key, task in run.tasks.items():
        if task.status == "retrying":
            waits.setdefault(key, set()).add("retry")
    return waits, busy


def _holds_others(run: RunState, task: Task) -> bool:
    """Whether the task is one whose node is a graph that has open tasks itself."""
    below = f"{_key(task)}|"
    return any(other.task_path.startswith(below) for other in run.tasks.values())


def _key(task: Task) -> str:
    return f"{task.step}:{task.task_path}"


def _task_at(run: RunState, payload: dict[str, Any]) -> Task | None:
    return run.tasks.get(f"{payload['step']}:{payload['task_path']}")


def _requested(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if payload["run_id"] == run.run_id:
        commanded(run, event, payload)


def _started(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if run.started_ms is not None:
        return
    run.agent_type, run.agent_version = payload["agent_type"], payload["agent_version"]
    run.status, run.started_ms = "running", event.timestamp_ms
    run.instance = event.producer.instance_id
    run.forked_from = (payload.get("forked_from") or {}).get("run_id")


def _parked(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.status, run.reason = "parked", payload["reason"]


def _resumed(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.status, run.reason = "running", None


def _migrated(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    _resumed(run, event, payload)
    run.moves.append(f"{payload['from_graph']['version']} → {payload['to_graph']['version']}")
    run.agent_version = payload["agent_version"]
    renamed = payload.get("renamed") or {}
    for key, task in list(run.tasks.items()):
        task.node = renamed.get(task.node, task.node)
        if "|" not in task.task_path and task.node not in payload["next"]:
            del run.tasks[key]


def _compensation(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.status, run.reason, run.error = "compensating", None, payload["message"]
    _nothing_is_open(run)


def _ended(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if payload.get("run_id") != run.run_id:
        return
    run.status, run.reason, run.ended_ms = ENDINGS[event.event_type], None, event.timestamp_ms
    run.error, run.result = payload.get("message"), payload.get("result")
    _nothing_is_open(run)
    run.open_effects = {
        effect_id: effect for effect_id, effect in run.open_effects.items() if effect.status == "undecided"
    }


def _nothing_is_open(run: RunState) -> None:
    run.tasks, run.timers, run.approvals = {}, {}, {}


def _cancel_requested(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.cancel_requested = run.cancel_requested or payload["run_id"] == run.run_id


def _signalled(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.signals += payload["run_id"] == run.run_id


def _entered(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    key = f"{payload['step']}:{payload['task_path']}"
    task = run.tasks.get(key)
    if task is None:
        task = Task(
            payload["node"], payload["step"], payload["task_path"], event.timestamp_ms, event.event_id
        )
        run.tasks[key] = task
        run.nodes.setdefault(task.node, NodeCounts()).entered += 1
    task.entered_id = event.event_id
    task.attempt, task.status, task.due_ms = max(task.attempt, payload["attempt"]), "running", None


def _completed(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if run.tasks.pop(f"{payload['step']}:{payload['task_path']}", None) is None:
        return
    counts = run.nodes.setdefault(payload["node"], NodeCounts())
    counts.completed += 1
    counts.duration_ms += payload["duration_ms"]


def _failed(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    counts = run.nodes.setdefault(payload["node"], NodeCounts())
    counts.failed += 1
    counts.error = f"{payload['error_type']}: {payload['message']}"
    task = _task_at(run, payload)
    if task is not None:
        retry_in_ms = payload.get("retry_in_ms")
        task.status = "failed" if retry_in_ms is None else "retrying"
        task.due_ms = None if retry_in_ms is None else event.timestamp_ms + retry_in_ms


def _retried(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    task = _task_at(run, payload)
    if task is None:
        return
    if payload["attempt"] > task.attempt:  # a process that took over says so again
        run.nodes.setdefault(task.node, NodeCounts()).retried += 1
        run.retries += 1
    task.attempt, task.status, task.due_ms = payload["attempt"], "running", None


def _asked(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.approvals.setdefault(
        payload["approval_id"],
        PendingApproval(
            payload["node"],
            payload["question"],
            event.timestamp_ms,
            task_of(run, event),
            list(payload.get("approvers") or ()),
            payload.get("deadline_ms"),
        ),
    )


def _answered(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.approvals.pop(payload["approval_id"], None)


def _timer_started(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    timer = PendingTimer(payload["node"], payload["due_ms"], task_of(run, event))
    run.timers.setdefault(payload["timer_id"], timer)


def _timer_fired(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if run.timers.pop(payload["timer_id"], None) is not None:
        run.timers_fired += 1


def is_call(run: RunState, payload: dict[str, Any]) -> bool:
    """Whether a call is one that this run makes, not the one that made it."""
    return caller_of(payload) == run.run_id


HANDLERS: Final[Mapping[str, Callable[[RunState, EventEnvelope, dict[str, Any]], None]]] = {
    "run.requested": _requested,
    "run.started": _started,
    "run.parked": _parked,
    "run.resumed": _resumed,
    "run.migrated": _migrated,
    "run.compensation.started": _compensation,
    "run.completed": _ended,
    "run.failed": _ended,
    "run.cancelled": _ended,
    "command.expired": _ended,
    "run.cancel.requested": _cancel_requested,
    "run.signalled": _signalled,
    "kernel.node.entered": _entered,
    "kernel.node.completed": _completed,
    "kernel.node.failed": _failed,
    "kernel.node.retried": _retried,
    "approval.requested": _asked,
    "approval.answered": _answered,
    "approval.expired": _answered,
    "timer.started": _timer_started,
    "timer.fired": _timer_fired,
}
"""How a run's row takes an event, by its type; what it uses is in `execution_use`."""
