"""The outcome of a run for who waits for it: its result, or the error that says how it ended."""

from __future__ import annotations

from typing import Any

from noesium_stream.errors import (
    DeadlineExceededError,
    PermissionDeniedError,
    RunCancelledError,
    RunFailedError,
)
from noesium_stream.event.envelope import EventEnvelope


def outcome_of(event: EventEnvelope) -> Any:
    """Return the result in a run's terminal event.

    Raises:
        RunFailedError: the run ended with an error, or its command expired.
        DeadlineExceededError: it had not ended by its deadline.
        RunCancelledError: it was cancelled.
        PermissionDeniedError: the policy does not allow its command.
    """
    payload = event.payload
    if event.event_type == "run.completed":
        return payload.get("result")
    if event.event_type == "run.cancelled":
        reason = payload.get("reason")
        raise RunCancelledError(f"Run {payload['run_id']} was cancelled" + (f": {reason}" if reason else "."))
    if event.event_type == "command.expired":
        raise RunFailedError(
            f"Run {payload['run_id']} was not executed: its command was {payload['age_ms']} ms old, its ttl "
            f"{payload['ttl_ms']} ms."
        )
    if event.event_type == "command.refused":
        raise PermissionDeniedError(f"Run {payload['run_id']} was not executed: {payload['message']}.")
    where, hint = payload.get("where"), payload.get("hint")
    late = payload["error_type"] == DeadlineExceededError.__name__
    if late and "where" not in payload:  # else a node has raised this error itself
        raise DeadlineExceededError(f"Run {payload['run_id']} failed: {payload['message']}.")
    raise RunFailedError(
        f"Run {payload['run_id']} failed: {payload['error_type']}: {payload['message']}",
        hint="\n".join([*([f"at {where}"] if where else []), *([hint] if hint else [])]) or None,
    )
