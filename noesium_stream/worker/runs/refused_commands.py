"""Commands that are not executed: their runs start and end at once, so that the caller is told.

The owner judges by the policy when it starts the run, and `run.started` records what it decided: every later
execution ends the run the same way, whatever the policy says by then.

A call is also judged by its capability's contract and by the agent's limits. Both are the same for every
execution, so nothing is recorded before the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.capabilities.version import check_version
from noesium_stream.errors import CapabilityError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import CALLS, FAIRNESS_KEY, input_of
from noesium_stream.event.rules.contract import Contract, contract_of
from noesium_stream.event.standard import Capability, CommandRefused, Grant, TaskRequested
from noesium_stream.event.trust.grants import missing, widening
from noesium_stream.event.trust.policy import Policy, ruling
from noesium_stream.event.trust.speaking import owner_of, principal_of
from noesium_stream.log.record import Record
from noesium_stream.worker.runs.run_session import RunSession


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


async def refused_call(agent: BaseGraphicAgent, session: RunSession) -> CapabilityError | None:
    """Why the agent does not take up the call that started a run; None: it does, or the run is no call."""
    command = session.command
    if command.event_type not in CALLS:
        return None
    try:
        agent.call_limits.check_command(command, agent.agent_type)
        contract = await contract_of_call(agent, session)
        contract.check_input(command.payload["capability_id"], input_of(command.payload))
    except CapabilityError as error:
        return error
    return None


async def contract_of_call(agent: BaseGraphicAgent, session: RunSession) -> Contract:
    """The contract of the call that started a run: the agent's own, or the registry's for another version."""
    payload = session.command.payload
    if session.command.event_type == TaskRequested.TYPE:
        return _contract_of_task(agent, payload["capability_id"])
    wanted = payload["capability_id"], payload["version"]
    own = next((one for one in agent.capabilities if (one.id, one.version) == wanted), None)
    return await session.contract(payload) if own is None else contract_of(own)


def _contract_of_task(agent: BaseGraphicAgent, capability_id: str) -> Contract:
    """The contract of a task, which asks for no version: that of the agent's highest one."""
    offered = [one for one in agent.capabilities if one.id == capability_id]
    offered.sort(key=lambda one: check_version(one.version).key)
    return contract_of(offered[-1]) if offered else Contract()


def refused_command(command: EventEnvelope, started: EventEnvelope) -> CommandRefused | None:
    """The end of a run whose command was refused when it started; None: it was not."""
    message = started.payload.get("refused")
    return None if message is None else refusal(command, started, message)


def refusal(command: EventEnvelope, started: EventEnvelope, message: str) -> CommandRefused:
    """The end of a run whose command is not executed."""
    return CommandRefused(
        run_id=started.payload["run_id"],
        command_id=command.event_id,
        principal=principal_of(command.producer),
        message=message,
    )
