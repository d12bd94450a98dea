"""Folds for a run's use of agents, effects and tools from its journal, used by `ExecutionProjection`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import caller_of
from noesium_stream.event.rules.effect_ledger import awaits_decision
from noesium_stream.projection.builtin.execution_run import drop_retries, task_of
from noesium_stream.projection.builtin.execution_state import (
    CIRCUIT_OPENS,
    CallState,
    Circuit,
    EffectState,
    RunState,
    UseCounts,
)


def _requested(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if payload["call_id"] in run.calls:
        return
    task, wanted = task_of(run, event), payload.get("version_range") or ""
    call = CallState(payload["capability_id"], wanted, "", event.timestamp_ms, task, "requested")
    run.calls[payload["call_id"]] = call
    run.open_calls[payload["call_id"]] = task


def _invoked(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    known = run.calls.get(payload.get("run_id", ""))
    if caller_of(payload) != run.run_id or (known is not None and known.status != "requested"):
        return  # the call that started this run, or a repeat
    task = task_of(run, event)
    run.calls[payload["run_id"]] = CallState(
        payload["capability_id"],
        payload.get("version", ""),
        payload.get("target_agent_type", ""),  # nobody is chosen for a task
        event.timestamp_ms,
        task,
    )
    run.open_calls[payload["run_id"]] = task


def _call_answered(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    call = run.calls.get(payload["call_id"])
    if call is None or call.status != "asked":
        return  # the run's own answer, or a repeat
    run.open_calls.pop(payload["call_id"], None)
    call.answered_ms, call.error = event.timestamp_ms, payload.get("error")
    call.status = "answered" if call.error is None else "failed"
    _note(run, f"capability:{call.capability_id}", event, call.error)


def _task_answered(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if payload.get("call_id") is not None:
        _call_answered(run, event, payload)


def _unresolved(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    call = CallState(payload["capability_id"], "", "", event.timestamp_ms, task_of(run, event), "requested")
    _end_call(run, event, run.calls.setdefault(payload["call_id"], call), "unresolved", "nobody offers it")


def _refused(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    call = run.calls.get(payload["call_id"])
    if call is not None and call.status == "answered":
        call.status, call.error = "failed", payload["error"]
    elif call is not None:
        _end_call(run, event, call, "failed", payload["error"])


def _expired(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    call = run.calls.get(payload["call_id"])
    if call is not None:
        _end_call(run, event, call, "failed", "its deadline has passed")


def _end_call(run: RunState, event: EventEnvelope, call: CallState, status: str, error: str) -> None:
    """End a call that has not ended: nobody answers it, or an answer comes too late."""
    if call.status not in ("requested", "asked"):
        return
    call.status, call.answered_ms, call.error = status, event.timestamp_ms, error
    run.open_calls.pop(event.payload["call_id"], None)
    _note(run, f"capability:{call.capability_id}", event, call.error)


def _effect_requested(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.effects.setdefault(payload["name"], UseCounts()).begun += 1
    base = payload["fingerprint"]
    drop_retries(run, lambda failed: failed.fingerprint == base)
    run.open_effects[payload["effect_id"]] = EffectState(
        payload["name"],
        payload["effect_class"],
        event.timestamp_ms,
        task_of(run, event),
        base,
        compensates=payload.get("compensates"),
    )


def _effect_completed(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    effect = run.open_effects.pop(payload["effect_id"], None)
    if effect is not None:
        counts = run.effects[effect.name]
        counts.completed += 1
        counts.duration_ms += payload["duration_ms"]
        _note(run, f"effect:{effect.name}", event, None)


def _effect_failed(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    effect = run.open_effects.get(payload["effect_id"])
    if effect is None:
        return
    counts = run.effects[effect.name]
    counts.failed += 1
    counts.error = f"{payload['error_type']}: {payload['message']}"
    _note(run, f"effect:{effect.name}", event, counts.error)
    if awaits_decision(event):
        effect.status, effect.outcome_id, effect.since_ms = "undecided", event.event_id, event.timestamp_ms
        effect.reason = f"it failed: {counts.error}"
    elif payload.get("retry_in_ms") is not None:
        effect.status, effect.due_ms = "retrying", event.timestamp_ms + payload["retry_in_ms"]
    else:
        del run.open_effects[payload["effect_id"]]


def _effect_unknown(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    effect = run.open_effects.get(payload["effect_id"])
    if effect is not None:
        run.effects[effect.name].unknown += 1
        effect.status, effect.outcome_id, effect.since_ms = "undecided", event.event_id, event.timestamp_ms
        effect.reason = payload["reason"]


def _effect_resolved(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    effect = run.open_effects.get(payload["effect_id"])
    if effect is None or effect.status != "undecided":
        return
    counts = run.effects[effect.name]
    if payload["decision"] == "result":
        counts.completed += 1
        _note(run, f"effect:{effect.name}", event, None)
    elif payload["decision"] == "fail" and effect.reason and not effect.reason.startswith("it failed: "):
        counts.failed += 1
    del run.open_effects[payload["effect_id"]]


def _tool_invoked(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.tools.setdefault(payload["tool_name"], UseCounts()).begun += 1


def _tool_completed(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    counts = run.tools.setdefault(payload["tool_name"], UseCounts())
    counts.completed += 1
    counts.duration_ms += payload["duration_ms"]
    _note(run, f"tool:{payload['tool_name']}", event, None)


def _tool_failed(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    counts = run.tools.setdefault(payload["tool_name"], UseCounts())
    counts.failed += 1
    counts.error = f"{payload['error_type']}: {payload['error']}"
    _note(run, f"tool:{payload['tool_name']}", event, counts.error)


def _tool_timeout(run: RunState, event: EventEnvelope, payload: dict[str, Any]) -> None:
    counts = run.tools.setdefault(payload["tool_name"], UseCounts())
    counts.timed_out += 1
    counts.error = f"it took longer than {payload['timeout_ms']} ms"
    _note(run, f"tool:{payload['tool_name']}", event, counts.error)


def _note(run: RunState, name: str, event: EventEnvelope, error: str | None) -> None:
    """Count consecutive failures; the first success closes the circuit."""
    if error is None:
        run.circuits.pop(name, None)
        return
    circuit = run.circuits.setdefault(name, Circuit())
    circuit.failures += 1
    circuit.failed_ms, circuit.error = event.timestamp_ms, error
    circuit.open = circuit.failures >= CIRCUIT_OPENS


HANDLERS: Final[Mapping[str, Callable[[RunState, EventEnvelope, dict[str, Any]], None]]] = {
    "capability.invoked": _invoked,
    "capability.completed": _call_answered,
    "capability.requested": _requested,
    "capability.unresolved": _unresolved,
    "capability.refused": _refused,
    "capability.expired": _expired,
    "task.requested": _invoked,
    "task.completed": _task_answered,
    "tool.invocation.requested": _invoked,
    "tool.invocation.completed": _call_answered,
    "effect.requested": _effect_requested,
    "effect.completed": _effect_completed,
    "effect.failed": _effect_failed,
    "effect.outcome.unknown": _effect_unknown,
    "effect.resolved": _effect_resolved,
    "tool.invoked": _tool_invoked,
    "tool.completed": _tool_completed,
    "tool.failed": _tool_failed,
    "tool.timeout": _tool_timeout,
}
"""Folds of a run's row by event type."""
