"""Commands that the policy does not allow: their runs start and end at once, so that the caller is told.

The owner judges when it starts the run, and `run.started` records what it decided: every later execution ends
the run the same way, whatever the policy says by then.
"""

from __future__ import annotations

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import FAIRNESS_KEY
from noesium_stream.event.standard import CommandRefused
from noesium_stream.event.trust.policy import Policy, ruling
from noesium_stream.event.trust.speaking import owner_of, principal_of
from noesium_stream.log.record import Record


def command_refusal(policy: Policy | None, record: Record) -> str | None:
    """Why a command of an inbox is refused; None: the policy allows it."""
    command = record.envelope
    tenant = command.metadata.get(FAIRNESS_KEY)
    return ruling(
        policy,
        command,
        record.signed_by,
        "fork" if command.payload.get("fork") else "start",
        owner_of(record.topic) or "",
        tenant=tenant if isinstance(tenant, str) and tenant else command.producer.agent_id,
    ).refused


def refused_command(command: EventEnvelope, started: EventEnvelope) -> CommandRefused | None:
    """The end of a run whose command was refused when it started; None: it was not."""
    message = started.payload.get("refused")
    if message is None:
        return None
    return CommandRefused(
        run_id=started.payload["run_id"],
        command_id=command.event_id,
        principal=principal_of(command.producer),
        message=message,
    )
