"""Folds for a run's life and nodes from its journal, used by `ExecutionProjection`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import COMMANDS, input_of
from noesium_stream.event.rules.labels import label_of
from noesium_stream.event.rules.run_life import ENDINGS, evolve, executor_of
from noesium_stream.projection.builtin.execution_state import (
    EffectState,
    NodeCounts,
    PendingApproval,
    PendingSignal,
    PendingTimer,
    RunState,
    Task,
)


def fold_life(run: RunState, event: EventEnvelope) -> None:
    """Fold an event into the run's life, and count the processes that have executed the run."""
    if evolve(run, event) and event.event_type in _OF_LIFE:
        _OF_LIFE[event.event_type](run, event, event.payload)
    instance = executor_of(run, event)
    if instance is not None:
        run.takeovers += run.instance not in ("", instance)
        run.instance = instance


def settle_status(run: RunState) -> None:
    """Set an open run's status: `running` if a task is active, `waiting` if all its tasks wait."""
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
    """The open task that caused an event, or else the task that was entered last."""
    for key, task in run.tasks.items():
        if task.entered_id == event.causation_id:
            return key
    return next(reversed(run.tasks), None)


def drop_retries(run: RunState, wanted: Callable[[EffectState], bool]) -> None:
    """Remove these of the failed attempts of effects that wait for their next attempt."""
    found = [key for key, one in run.open_effects.items() if one.status == "retrying" and wanted(one)]
    for effect_id in found:
        del run.open_effects[effect_id]


def _drop_retries_of(run: RunState, key: str) -> None:
    """Remove the failed attempts of a task that has ended, and of the tasks of its subgraph."""
    drop_retries(run, lambda one: one.task == key or _path(one.task).startswith(f"{key}|"))


def _drop_awaited_of(run: RunState, key: str) -> None:
    """Remove the waits for signals of an attempt that has ended."""
    for wait_id in [wait_id for wait_id, one in run.awaited.items() if one.task == key]:
        del run.awaited[wait_id]


def _path(key: str | None) -> str:
    """The `task_path` in a task's key."""
    return (key or "").partition(":")[2]


def _waits(run: RunState) -> tuple[dict[str, set[str]], set[str]]:
    """The reasons that each open task waits for, and the tasks that also do something else."""
    waits: dict[str, set[str]] = {}
    busy: set[str] = set()
    for kind, found in (("approval", run.approvals), ("timer", run.timers), ("signal", run.awaited)):
        for one in found.values():
            waits.setdefault(one.task or "", set()).add(kind)
    for call_id, asking in run.open_calls.items():
        kind = "provider" if run.calls[call_id].status == "requested" else "call"
        waits.setdefault(asking or "", set()).add(kind)
    for effect in run.open_effects.values():
        if effect.status == "running":
            busy.add(effect.task or "")
        else:
            kind = "retry" if effect.status == "retrying" else "effect"
            waits.setdefault(effect.task or "", set()).add(kind)
    for key, task in run.tasks.items():
        if task.status == "retrying":
            waits.setdefault(key, set()).add("retry")
    return waits, busy


def _holds_others(run: RunState, task: Task) -> bool:
    """Whether the task's node is a subgraph with open tasks of its own."""
    below = f"{_key(task)}|"
    return any(other.task_path.startswith(below) for other in run.tasks.values())


def _key(task: Task) -> str:
    return f"{task.step}:{task.task_path}"


def _task_at(run: RunState, payload: dict[str, Any]) -> Task | None:
    return run.tasks.get(f"{payload['step']}:{payload['task_path']}")


def _commanded(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.label = label_of(input_of(payload))
    run.parent_run_id = payload.get("caller_run_id")
    run.root_run_id = event.correlation_id


def _started(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.forked_from = (payload.get("forked_from") or {}).get("run_id")


def _migrated(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.moves.append(f"{payload['from_graph']['version']} → {payload['to_graph']['version']}")
    renamed = payload.get("renamed") or {}
    for key, task in list(run.tasks.items()):
        task.node = renamed.get(task.node, task.node)
        if "|" not in task.task_path and task.node not in payload["next"]:
            del run.tasks[key]
            _drop_retries_of(run, key)
            _drop_awaited_of(run, key)


def _compensating(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.tasks, run.timers, run.approvals, run.awaited = {}, {}, {}, {}
    drop_retries(run, lambda one: True)


def _ended(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.tasks, run.timers, run.approvals, run.awaited = {}, {}, {}, {}
    run.open_effects = {
        effect_id: effect for effect_id, effect in run.open_effects.items() if effect.status == "undecided"
    }


def _cancel_requested(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.cancel_requested = run.cancel_requested or payload["run_id"] == run.run_id


def _signalled(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.signals += payload["run_id"] == run.run_id
    for wait_id, awaited in list(run.awaited.items()):
        awaited.missing -= awaited.name == payload["name"]
        if awaited.missing < 1:
            del run.awaited[wait_id]


def _awaited(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    awaited = PendingSignal(payload["node"], payload["name"], payload["missing"], task_of(run, event))
    run.awaited.setdefault(payload["wait_id"], awaited)


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
    key = f"{payload['step']}:{payload['task_path']}"
    if run.tasks.pop(key, None) is None:
        return
    _drop_retries_of(run, key)
    _drop_awaited_of(run, key)
    counts = run.nodes.setdefault(payload["node"], NodeCounts())
    counts.completed += 1
    counts.duration_ms += payload["duration_ms"]


def _failed(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    counts = run.nodes.setdefault(payload["node"], NodeCounts())
    counts.failed += 1
    counts.error = f"{payload['error_type']}: {payload['message']}"
    task = _task_at(run, payload)
    if task is not None:
        _drop_retries_of(run, _key(task))
        _drop_awaited_of(run, _key(task))
        retry_in_ms = payload.get("retry_in_ms")
        task.status = "failed" if retry_in_ms is None else "retrying"
        task.due_ms = None if retry_in_ms is None else event.timestamp_ms + retry_in_ms


def _retried(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    task = _task_at(run, payload)
    if task is None:
        return
    if payload["attempt"] > task.attempt:  # a new owner reports the same attempt again
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
            payload.get("minimum"),
        ),
    )


def _answered(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    question = run.approvals.get(payload["approval_id"])
    if question is None:
        return
    if payload["approved"] and payload["answered_by"] not in question.approved_by:
        question.approved_by.append(payload["answered_by"])
    if not payload["approved"] or len(question.approved_by) >= (question.minimum or 1):
        del run.approvals[payload["approval_id"]]


def _expired(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.approvals.pop(payload["approval_id"], None)


def _timer_started(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    timer = PendingTimer(payload["node"], payload["due_ms"], task_of(run, event))
    run.timers.setdefault(payload["timer_id"], timer)


def _timer_fired(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if run.timers.pop(payload["timer_id"], None) is not None:
        run.timers_fired += 1


_Fold = Callable[[RunState, EventEnvelope, dict[str, Any]], None]

_OF_LIFE: Final[Mapping[str, _Fold]] = {
    **dict.fromkeys(COMMANDS, _commanded),
    "run.started": _started,
    "run.migrated": _migrated,
    "run.compensation.started": _compensating,
    **dict.fromkeys(ENDINGS, _ended),
}
"""Folds of the events that count in a run's life, after `evolve`."""

HANDLERS: Final[Mapping[str, _Fold]] = {
    "run.cancel.requested": _cancel_requested,
    "run.signalled": _signalled,
    "kernel.signal.awaited": _awaited,
    "kernel.node.entered": _entered,
    "kernel.node.completed": _completed,
    "kernel.node.failed": _failed,
    "kernel.node.retried": _retried,
    "approval.requested": _asked,
    "approval.answered": _answered,
    "approval.expired": _expired,
    "timer.started": _timer_started,
    "timer.fired": _timer_fired,
}
"""Folds of other events by event type; those of calls, effects and tools are in `execution_use`."""
