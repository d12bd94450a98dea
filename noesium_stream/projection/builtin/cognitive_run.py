"""Folds for a run's conversation, tool use, plan and reasoning, used by `CognitiveProjection`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import caller_of, input_of, output_of
from noesium_stream.projection.builtin.cognitive_state import (
    Message,
    PlannedTask,
    PlanStep,
    RunMind,
    Thought,
    ToolUse,
)

MODEL: Final = "model:"
"""Name prefix of effects that call a model."""


def _commanded(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if run.agent_type or payload["run_id"] != run.run_id:
        return
    run.agent_type = payload.get("target_agent_type") or payload.get("agent_type") or ""
    _say(run, "user", "input", input_of(payload), event, event.producer.agent_id)


def _signalled(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    content = {"name": payload["name"], "value": payload.get("value")}
    _say(run, "user", "signal", content, event, event.producer.agent_id)


def _asked(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    _say(run, "assistant", "question", payload["question"], event, payload["node"])


def _answered(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    content = {"approved": payload["approved"], "value": payload.get("value")}
    _say(run, "user", "answer", content, event, payload["answered_by"])


def _completed(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if payload["run_id"] == run.run_id:
        _say(run, "assistant", "result", payload.get("result"), event, None)
        _end(run)


def _failed(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if payload["run_id"] == run.run_id:
        reason = payload.get("message") or payload.get("reason")
        error = {"error_type": payload.get("error_type") or event.event_type, "message": reason}
        _say(run, "assistant", "error", error, event, None)
        _end(run)


def _end(run: RunMind) -> None:
    run.ended = True
    run.open_nodes, run.thinking = {}, {}


def _say(run: RunMind, role: str, kind: str, content: Any, event: EventEnvelope, by: str | None) -> None:
    run.messages.append(Message(role, kind, content, event.timestamp_ms, by))


def _entered(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.open_nodes[event.event_id] = payload["node"]


def _left(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.open_nodes.pop(event.causation_id or "", None)


def _node_of(run: RunMind, event: EventEnvelope) -> str | None:
    return run.open_nodes.get(event.causation_id or "")


def _superstep(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.plan.append(PlanStep(payload["step"], list(payload.get("nodes") or ()), event.timestamp_ms))


def _migrated(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    run.moves.append(f"{payload['from_graph']['version']} → {payload['to_graph']['version']}")


def _task_requested(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if payload.get("run_id") == run.run_id:
        _commanded(run, event, payload)  # the task that this run does
        return
    run.tasks.setdefault(payload["task_id"], PlannedTask(payload["capability_id"], event.timestamp_ms))


def _task_completed(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    task = run.tasks.get(payload["task_id"])
    if task is not None and task.status == "open":
        task.result, task.error = payload.get("result"), payload.get("error")
        task.status = "done" if task.error is None else "failed"


def _called(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if caller_of(payload) != run.run_id:
        _commanded(run, event, payload)
        return
    use = ToolUse(
        "capability", payload["capability_id"], input_of(payload), event.timestamp_ms, _node_of(run, event)
    )
    run.uses.setdefault(payload["run_id"], use)


def _call_answered(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    error = payload.get("error")
    _ended(run, event, payload["call_id"], "completed" if error is None else "failed", error)
    use = run.uses.get(payload["call_id"])
    if use is not None and use.status == "completed":
        use.output = output_of(payload)


def _unresolved(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if payload["call_id"] in run.uses:
        return  # it was called, has failed, and nobody else could be asked
    use = ToolUse("capability", payload["capability_id"], None, event.timestamp_ms, status="unresolved")
    use.ended_ms = event.timestamp_ms
    run.uses.setdefault(payload["call_id"], use)


def _call_ended(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    use = ToolUse("capability", payload["capability_id"], None, event.timestamp_ms)
    use = run.uses.setdefault(payload["call_id"], use)
    use.status, use.error = "failed", payload.get("error", "its deadline has passed")
    use.ended_ms = event.timestamp_ms


def _effect_requested(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    name, arguments, node = payload["name"], payload.get("arguments"), _node_of(run, event)
    if name.startswith(MODEL):
        run.thinking[payload["effect_id"]] = len(run.thoughts)
        run.thoughts.append(Thought(name.removeprefix(MODEL), node, _prompt(arguments), event.timestamp_ms))
    else:
        run.uses[payload["effect_id"]] = ToolUse("effect", name, arguments, event.timestamp_ms, node)


def _prompt(arguments: Any) -> Any:
    """The model's prompt, from the arguments of its effect."""
    given = (arguments.get("args") or arguments) if isinstance(arguments, dict) else arguments
    return given[0] if isinstance(given, list) and len(given) == 1 else given


def _effect_completed(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    result = payload.get("result")
    index = run.thinking.pop(payload["effect_id"], None)
    if index is not None:
        text = result.get("text") if isinstance(result, dict) else None
        run.thoughts[index].answer = result if text is None else text
        return
    use = _ended(run, event, payload["effect_id"], "completed", None)
    if use is not None:
        use.output = result


def _effect_failed(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    error = f"{payload['error_type']}: {payload['message']}"
    index = run.thinking.get(payload["effect_id"])
    if index is not None:
        run.thoughts[index].error = error
    else:
        _ended(run, event, payload["effect_id"], "failed", error)


def _effect_unknown(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    _ended(run, event, payload["effect_id"], "unknown", payload["reason"])


def _effect_resolved(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    use = run.uses.get(payload["effect_id"])
    if use is None or use.status not in ("unknown", "failed"):
        return
    if payload["decision"] == "result":
        use.status, use.error, use.output = "completed", None, payload.get("result")
    elif payload["decision"] == "fail":
        use.status = "failed"


def _tool_invoked(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    node = _node_of(run, event)
    use = ToolUse("tool", payload["tool_name"], payload["input"], event.timestamp_ms, node)
    run.uses.setdefault(payload["call_id"], use)


def _tool_completed(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    use = _ended(run, event, payload["call_id"], "completed", None)
    if use is not None:
        use.output = payload.get("output")


def _tool_failed(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    _ended(run, event, payload["call_id"], "failed", f"{payload['error_type']}: {payload['error']}")


def _tool_timeout(run: RunMind, event: EventEnvelope, payload: dict[str, Any]) -> None:
    _ended(run, event, payload["call_id"], "timeout", f"it took longer than {payload['timeout_ms']} ms")


def _ended(
    run: RunMind, event: EventEnvelope, call_id: str, status: str, error: str | None
) -> ToolUse | None:
    """The finished tool use; None if it is not open (an effect may be retried)."""
    use = run.uses.get(call_id)
    if use is None or (use.status != "running" and use.kind != "effect"):
        return None
    use.status, use.error, use.ended_ms = status, error, event.timestamp_ms
    return use


HANDLERS: Final[Mapping[str, Callable[[RunMind, EventEnvelope, dict[str, Any]], None]]] = {
    "run.requested": _commanded,
    "run.signalled": _signalled,
    "run.migrated": _migrated,
    "run.completed": _completed,
    "run.failed": _failed,
    "run.cancelled": _failed,
    "command.expired": _failed,
    "command.refused": _failed,
    "approval.requested": _asked,
    "approval.answered": _answered,
    "kernel.node.entered": _entered,
    "kernel.node.completed": _left,
    "kernel.checkpoint.created": _superstep,
    "task.requested": _task_requested,
    "task.completed": _task_completed,
    "capability.invoked": _called,
    "capability.completed": _call_answered,
    "capability.unresolved": _unresolved,
    "capability.refused": _call_ended,
    "capability.expired": _call_ended,
    "tool.invocation.requested": _called,
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
