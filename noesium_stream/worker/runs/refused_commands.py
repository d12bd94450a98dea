"""Commands that the policy does not allow: their runs start and end at once, so that the caller is told.

The owner judges when it starts the run, and `run.started` records what it decided: every later execution ends
the run the same way, whatever the policy says by then.
"""

from __future__ import annotations

from collections.abc import Sequence

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import FAIRNESS_KEY
from noesium_stream.event.standard import Capability, CommandRefused, Grant
from noesium_stream.event.trust.grants import missing, widening
from noesium_stream.event.trust.policy import Policy, ruling
from noesium_stream.event.trust.speaking import owner_of, principal_of
from noesium_stream.log.record import Record


def command_refusal(
    policy: Policy | None, record: Record, grant: Grant | None, offered: Sequence[Capability]
) -> str | None:
    """Why a command of an inbox is refused; None: it is allowed.

    Args:
        policy: of this process.
        record: the command.
        grant: what its run would act with (see `given_to`).
        offered: what the agent offers. A command that calls none of these by name needs what any of them
            asks for: the agent's graph runs all the same.
    """
    command = record.envelope
    if grant is not None:
        called = [one for one in offered if one.id == command.payload.get("capability_id")] or offered
        problem = widening(policy, grant) or missing(
            {role for one in called for role in one.required_roles},
            {scope for one in called for scope in one.required_scopes},
            grant,
        )
        if problem is not None:
            return problem
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
