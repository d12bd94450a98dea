"""Formatting of an event as one line for people."""

from __future__ import annotations

from typing import Any, Final

from noesium_stream.cli.output import bold, dim, duration, shorten
from noesium_stream.clock import to_rfc3339
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import input_of

SHORT_ID: Final = 13
"""Length of a shortened run id: these characters are the millisecond at which it was made."""

_TELLING: Final = ("node", "capability_id", "name", "error", "message", "reason", "question")


def event_line(event: EventEnvelope) -> str:
    """Format time, type, agent, run and the most informative payload fields."""
    time = to_rfc3339(event.timestamp_ms)[11:23]
    run = (event.partition_key or "")[:SHORT_ID]
    who = f"{event.producer.agent_type:<12}"
    line = f"{dim(time)}  {bold(f'{event.event_type:<25}')}  {who}  {dim(f'{run:<13}')}".rstrip()
    details = event_details(event.payload)
    return f"{line}  {details}" if details else line


def event_details(payload: dict[str, Any]) -> str:
    """Format the most informative fields of a payload on one line."""
    source = {**payload, **input_of(payload)}
    parts = [shorten(str(source[name]), 80) for name in _TELLING if source.get(name)]
    if isinstance(payload.get("tool_name"), str) and not payload.get("capability_id"):
        parts.insert(0, shorten(payload["tool_name"], 80))  # an argument may have the same name
    if isinstance(payload.get("state"), str):  # of a sub-agent; that of a migrated run is an object
        parts.insert(0, payload["state"])
    if "run_id" not in payload and isinstance(payload.get("agent_id"), str):  # its watcher may say it
        parts.insert(0, shorten(payload["agent_id"], 80))
    if isinstance(payload.get("duration_ms"), int):
        parts.append(duration(payload["duration_ms"]))
    return "  ".join(parts)
