"""`noesium capability`: what agents offer one another, and who is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from noesium_stream.capabilities.configured_policy import configured_policy
from noesium_stream.capabilities.own_tools import is_own_tool
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.capabilities.resolution import Resolution
from noesium_stream.capabilities.snapshot import SNAPSHOTS
from noesium_stream.capabilities.state import Entry, RegistryState
from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import json_text, note, out, out_json
from noesium_stream.cli.session import asynchronous, json_option, log_option, opened
from noesium_stream.cli.table import table
from noesium_stream.config import load_config
from noesium_stream.errors import CapabilityNotFoundError
from noesium_stream.escapes import escaped
from noesium_stream.log import EventLog


@click.group("capability")
def capability_command() -> None:
    """List what agents offer one another, and say who is chosen for a call."""


@capability_command.command("list")
@click.option("--tag", metavar="TAG", help="Only with this tag.")
@click.option("-a", "--agent", "agent_type", metavar="TYPE", help="Only of this agent type.")
@click.option("--all", "with_deprecated", is_flag=True, help="Also deprecated versions.")
@log_option
@json_option
@asynchronous
async def list_command(
    tag: str | None, agent_type: str | None, with_deprecated: bool, log_url: str | None, as_json: bool
) -> None:
    """List capabilities: version, agent, priority, weight, status.

    STATUS is live, deprecated, unavailable (its agent does not answer), circuit open (calls of it have failed
    in a row), or own tool (of its agent alone, see `noesium tools`).
    """
    async with opened(log_url) as log:
        state = await _registry(log).refresh()
        found = [
            (entry, _status(entry, state))
            for entry in state.entries(own_tools=True)
            if (with_deprecated or not entry.deprecated)
            and agent_type in (None, entry.agent_type)
            and (tag is None or tag in entry.capability.tags)
        ]
        where = log.url
    found.sort(key=lambda one: one[0].capability_id)
    if as_json:
        out_json([_as_json(entry, status) for entry, status in found])
    elif not found:
        note(f"There are no such capabilities on {where} yet.")
    else:
        table(
            ("capability", "version", "agent", "priority", "weight", "status"),
            [_row(entry, status) for entry, status in found],
            right=frozenset({3, 4}),
        )


@capability_command.command("show")
@click.argument("capability_id", metavar="ID")
@log_option
@json_option
@asynchronous
async def show_command(capability_id: str, log_url: str | None, as_json: bool) -> None:
    """Show all versions of a capability, with schemas and metadata; the newest registration comes last."""
    async with opened(log_url) as log:
        registry = _registry(log)
        state = await registry.refresh()
        offers = state.offers(capability_id)
        if offers is None:
            known = sorted({entry.capability_id for entry in state.entries()})
            raise CapabilityNotFoundError(
                f"Nobody has registered {capability_id} on {log.url}.",
                hint=f"There are: {', '.join(known[:20]) or 'none'}. See: noesium capability list --all",
            )
        entries = sorted(offers.entries.values(), key=lambda entry: entry.order)
        found = [(entry, _status(entry, state)) for entry in entries]
    if as_json:
        out_json([_as_json(entry, status) for entry, status in found])
        return
    for number, (entry, status) in enumerate(found):
        out("" if number else f"{escaped(capability_id)}")
        _describe(entry, status)


@capability_command.command("resolve")
@click.argument("capability_id", metavar="ID")
@click.option("--version", "version_range", metavar="RANGE", help="The versions that fit: ^1, ~1.2, 1.2.3.")
@click.option("--run", "run_id", metavar="RUN_ID", help="The run that calls; it spreads runs over providers.")
@click.option("--explain", is_flag=True, help="Say of each offer why it was taken or not.")
@click.option(
    "--at",
    "position",
    type=click.IntRange(0),
    metavar="POSITION",
    help="As of this position of the registry: that of a recorded choice. [default: now]",
)
@click.option(
    "--without", metavar="AGENT", multiple=True, help="As if this agent offered nothing. Repeatable."
)
@click.option("--role", "roles", metavar="ROLE", multiple=True, help="A role of the caller. Repeatable.")
@click.option("--scope", "scopes", metavar="SCOPE", multiple=True, help="A scope of the caller. Repeatable.")
@log_option
@json_option
@asynchronous
async def resolve_command(
    capability_id: str,
    version_range: str | None,
    run_id: str | None,
    explain: bool,
    position: int | None,
    without: tuple[str, ...],
    roles: tuple[str, ...],
    scopes: tuple[str, ...],
    log_url: str | None,
    as_json: bool,
) -> None:
    """Print the agent that a call of a capability goes to now, without calling it.

    Roles and scopes are judged only if some are given. Nobody: exit code 1.
    """
    async with opened(log_url) as log:
        registry = _registry(log)
        asked: dict[str, Any] = {
            "run_id": run_id,
            "roles": roles or None,
            "scopes": scopes or None,
            "without": without,
            "at": position,
        }
        found: Resolution = await registry.resolve(capability_id, version_range, **asked, explain=True)
        if found.chosen is None and not explain and not as_json:
            await registry.resolve(capability_id, version_range, **asked)
    if as_json:
        out_json(_resolution_json(found))
    elif explain:
        _explain(found)
    elif found.chosen is not None:
        out(escaped(f"{found.chosen.agent_id} {found.chosen.version}"))
    if found.chosen is None:
        raise click.exceptions.Exit(FAILED)


@capability_command.command("check")
@click.argument("agent", metavar="AGENT")
@click.option("--replay", "runs", type=click.IntRange(1), metavar="N", help="Replay the last N calls, too.")
@log_option
@json_option
@asynchronous
async def check_command(agent: str, runs: int | None, log_url: str | None, as_json: bool) -> None:
    """Say before a deploy whether a worker of AGENT could register what it offers.

    AGENT is as for `noesium worker`. With --replay the last N runs that others asked for are replayed against
    it, and the first difference is shown; no effect is called and nothing is written. Refused or different:
    exit code 1.
    """
    # It imports LangGraph, and the commands above only read.
    from noesium_stream.cli.commands.capabilities.check import checked  # noqa: PLC0415

    async with opened(log_url) as log:
        found = await checked(log, _registry(log), agent, runs)
    if as_json:
        out_json([one.as_json() for one in found])
    else:
        for line in (line for one in found for line in one.lines()):
            out(escaped(line))
    if any(one.is_refused for one in found):
        raise click.exceptions.Exit(FAILED)


def _registry(log: EventLog) -> CapabilityRegistry:
    """The registry, from the snapshot that workers of this machine keep, if there is one."""
    folder = load_config().home / SNAPSHOTS
    return CapabilityRegistry(log, policy=configured_policy(log), folder=folder)


def _status(entry: Entry, state: RegistryState) -> str:
    if entry.deprecated:
        return "deprecated"
    if state.unavailable(entry.agent_id) is not None:
        return "unavailable"
    if is_own_tool(entry.capability_id):
        return "own tool"
    return "live" if state.broken(entry.agent_id, entry.capability_id) is None else "circuit open"


def _row(entry: Entry, status: str) -> Sequence[str]:
    one = entry.capability
    return one.id, one.version, entry.agent_id, str(one.priority), str(one.weight), status


def _as_json(entry: Entry, status: str) -> dict[str, Any]:
    return {
        "agent_id": entry.agent_id,
        "agent_type": entry.agent_type,
        "status": status,
        "order": entry.order,
        "event_id": entry.event_id,
        "deprecation": entry.deprecation,
        "capability": entry.capability.model_dump(mode="json"),
    }


def _describe(entry: Entry, status: str) -> None:
    one = entry.capability
    reason = f": {entry.deprecation}" if entry.deprecation else ""
    out(escaped(f"{one.version} of {entry.agent_id} (agent type {entry.agent_type}), {status}{reason}"))
    for line in one.description.splitlines():
        out(f"  {escaped(line)}")
    facts = {
        "type": one.capability_type,
        "side effects": one.side_effects,
        "latency": one.latency_class,
        "determinism": one.determinism_class,
        "priority": one.priority,
        "weight": one.weight,
        "tags": ", ".join(one.tags),
        "roles": ", ".join(one.required_roles),
        "scopes": ", ".join(one.required_scopes),
    }
    said = ", ".join(f"{name} {value}" for name, value in facts.items() if value != "")
    out(f"  {escaped(said)}")
    for side, schema in (("input", one.input_schema), ("output", one.output_schema)):
        out(f"  {side} {escaped(json_text(schema))}")


def _explain(found: Resolution) -> None:
    out(escaped(f"{found.wanted}, at position {found.position} of the registry"))
    if not found.candidates:
        out("  nobody has registered it")
    for one in found.candidates:
        out(escaped(f"  {one.entry.agent_id} {one.entry.version}: {one.reason}"))


def _resolution_json(found: Resolution) -> dict[str, Any]:
    chosen = found.chosen
    return {
        "capability_id": found.wanted.capability_id,
        "version_range": found.wanted.version_range,
        "run_id": found.wanted.run_id,
        "position": found.position,
        "chosen": None
        if chosen is None
        else {"agent_id": chosen.agent_id, "agent_type": chosen.agent_type, "version": chosen.version},
        "candidates": [
            {
                "agent_id": one.entry.agent_id,
                "version": one.entry.version,
                "taken": one.taken,
                "reason": one.reason,
            }
            for one in found.candidates
        ],
    }
