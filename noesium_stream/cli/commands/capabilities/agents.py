"""`noesium agents`: what agents there are, who runs them, and what they offer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from noesium_stream.capabilities.configured_policy import configured_policy
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.cli.output import note, out_json
from noesium_stream.cli.session import asynchronous, json_option, log_option, opened
from noesium_stream.cli.table import table
from noesium_stream.client import Client
from noesium_stream.client.views.agents import AgentInfo, known_agents
from noesium_stream.clock import SystemClock


@click.command("agents")
@click.option("-a", "--agent", "agent_type", metavar="TYPE", help="Only this agent type.")
@log_option
@json_option
@asynchronous
async def agents_command(agent_type: str | None, log_url: str | None, as_json: bool) -> None:
    """List agents: who runs them, versions, health, open runs, and what they offer.

    INSTANCES are the processes at work that have sent a heartbeat within three intervals (30 s). STATUS is
    ready, stopped (no process), or unavailable, as the registry says. An agent is followed by
    its processes and its live capabilities.
    """
    clock = SystemClock()
    async with opened(log_url) as log, Client(log) as client:
        registry = CapabilityRegistry(log, clock=clock, policy=configured_policy(log))
        found = await known_agents(log, clock, registry, await client.agent_types())
    found = [one for one in found if agent_type in (None, one.agent_type)]
    if as_json:
        out_json([_as_json(one) for one in found])
    elif not found:
        note(f"There are no agents of type {agent_type} yet." if agent_type else "There are no agents yet.")
    else:
        table(
            ("agent", "status", "instances", "open runs", "versions"),
            map(_row, found),
            right=frozenset({2, 3}),
            below=[*map(_below, found)],
        )


def _as_json(one: AgentInfo) -> dict[str, Any]:
    return {**asdict(one), "status": one.status, "open_runs": one.open_runs, "versions": one.versions}


def _row(one: AgentInfo) -> tuple[str, ...]:
    return (
        one.agent_type,
        one.status,
        str(len(one.instances)),
        str(one.open_runs),
        ", ".join(one.versions),
    )


def _below(one: AgentInfo) -> list[str]:
    lines = [] if one.health is None else [f"unavailable: {one.health}"]
    lines += [f"{it.process or it.instance_id}: {it.open_runs} open" for it in one.instances]
    return [*lines, f"offers {', '.join(one.capabilities)}"] if one.capabilities else lines
