"""Progress lines of `noesium run`: one line for each step that a person would wait for."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final

from noesium_stream.cli.eventline import SHORT_ID, event_details
from noesium_stream.cli.output import counts, dim, duration, shorten
from noesium_stream.clock import to_rfc3339
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import ANSWERS, CALLS, input_of, output_of

_SHOWN: Final = 100
_SILENT: Final = (
    "run.",
    "partition.",
    "kernel.checkpoint",
    "kernel.node.entered",
    "effect.",
    "capability.requested",
)


def progress_line(event: EventEnvelope, run_id: str, on_log: str = "") -> str | None:
    """Format an event as a progress line; None: the event is not shown.

    `on_log` is the option that commands need for this log (` --log URL`), or empty.
    """
    line, commands = progress_parts(event, run_id, on_log)
    return None if line is None else "\n    ".join((line, *map(dim, commands)))


def progress_parts(event: EventEnvelope, run_id: str, on_log: str = "") -> tuple[str | None, list[str]]:
    """Return the progress line of an event and the commands with which a person reads and answers it."""
    render = _LINES.get(event.event_type)
    if render is not None:
        line = render(event.payload, run_id)
        commands = _commands(event.event_type, event.payload) if line is not None else ()
        return line, [command + on_log for command in commands]
    if event.event_type.startswith(_SILENT):
        return None, []
    return f"  {dim(event.event_type)}  {event_details(event.payload)}".rstrip(), []


def command_to_read(payload: dict[str, Any]) -> str:
    """Return the command that shows a question whole."""
    return f"noesium approvals {payload['run_id']}"


def _commands(event_type: str, payload: dict[str, Any]) -> Sequence[str]:
    """Return the commands with which a person reads and answers what an event asks."""
    if event_type in ("effect.outcome.unknown", "effect.failed"):
        return (f"noesium effect resolve {payload['run_id']} {payload['effect_id'][:SHORT_ID]} --help",)
    if event_type == "approval.requested":
        answer = f"noesium approve {payload['run_id']} {payload['approval_id'][:SHORT_ID]}"
        text = _question(payload).strip()
        return (answer,) if shorten(text, _SHOWN) == text else (command_to_read(payload), answer)
    if event_type == "kernel.signal.awaited":
        name = shlex.quote(shorten(payload["name"], _SHOWN))
        return (f"noesium signal {payload['run_id']} {name} [VALUE]",)
    return ()


def _started(payload: dict[str, Any], run_id: str) -> str:
    return f"{payload['agent_type']} {payload['agent_version']} begins"


def _completed(payload: dict[str, Any], run_id: str) -> str:
    line = f"  {payload['node']:<10} {duration(payload['duration_ms']):>8}  {counts(payload.get('delta'))}"
    return line.rstrip()


def _failed(payload: dict[str, Any], run_id: str) -> str:
    return f"  {payload['node']:<10} failed: {shorten(payload['message'], _SHOWN)}"


def _retried(payload: dict[str, Any], run_id: str) -> str:
    return f"  {payload['node']:<10} attempt {payload['attempt']}"


def _invoked(payload: dict[str, Any], run_id: str) -> str | None:
    if payload.get("caller_run_id") != run_id:
        return None
    asked = next((str(value) for value in input_of(payload).values() if isinstance(value, str)), "")
    whom = payload.get("target_agent_type") or "whoever is free"
    return f"  → {payload['capability_id']} ({whom})  {dim(shorten(asked, 70))}".rstrip()


def _answered(payload: dict[str, Any], run_id: str) -> str | None:
    if payload.get("caller_run_id") != run_id:
        return None
    outcome = f"failed: {payload['error']}" if payload.get("error") else counts(output_of(payload))
    return f"  ← {payload['capability_id']}  {outcome}".rstrip()


def _effect_unknown(payload: dict[str, Any], run_id: str) -> str:
    return _effect_waits(payload, payload["reason"])


def _effect_failed(payload: dict[str, Any], run_id: str) -> str | None:
    if not payload.get("awaits_decision"):
        return None
    return _effect_waits(payload, f"what undoes it failed: {payload['message']}")


def _effect_waits(payload: dict[str, Any], reason: str) -> str:
    return f"  waits for a person: {' '.join(reason.split())}"


def _effect_resolved(payload: dict[str, Any], run_id: str) -> str:
    return f"  {payload['resolved_by']} decided: {payload['decision']}"


def _asked(payload: dict[str, Any], run_id: str) -> str:
    return f"  {payload['node']:<10} asks: {shorten(_question(payload), _SHOWN)} (approve or reject)"


def _question(payload: dict[str, Any]) -> str:
    question = payload["question"]
    return question if isinstance(question, str) else json.dumps(question, ensure_ascii=False)


def _awaited(payload: dict[str, Any], run_id: str) -> str:
    return f"  {payload['node']:<10} waits for the signal {shorten(payload['name'], _SHOWN)}"


def _decided(payload: dict[str, Any], run_id: str) -> str:
    return f"  {payload['answered_by']} {'approved' if payload['approved'] else 'rejected'}"


def _compensating(payload: dict[str, Any], run_id: str) -> str:
    return f"  {payload['cause']}: what it did is being undone"


def _overdue(payload: dict[str, Any], run_id: str) -> str:
    return f"  its deadline has passed: {to_rfc3339(payload['deadline_ms'])}"


def _stranded(payload: dict[str, Any], run_id: str) -> str:
    return f"  stranded: {payload['reason']}"


def _resumed(payload: dict[str, Any], run_id: str) -> str:
    return "  goes on"


_LINES: Final[dict[str, Callable[[dict[str, Any], str], str | None]]] = {
    "run.started": _started,
    "kernel.node.completed": _completed,
    "kernel.node.failed": _failed,
    "kernel.node.retried": _retried,
    **dict.fromkeys(CALLS, _invoked),
    **dict.fromkeys(ANSWERS, _answered),
    "approval.requested": _asked,
    "kernel.signal.awaited": _awaited,
    "approval.answered": _decided,
    "effect.failed": _effect_failed,
    "effect.outcome.unknown": _effect_unknown,
    "effect.resolved": _effect_resolved,
    "run.compensation.started": _compensating,
    "run.deadline.passed": _overdue,
    "run.parked": _stranded,
    "run.resumed": _resumed,
}
