"""`noesium tools`: the registered tools of all agents, and what has changed about them."""

from __future__ import annotations

from typing import Any, Final

import click

from noesium_stream.capabilities.configured_policy import configured_policy
from noesium_stream.cli.commands.tools_call import call_command
from noesium_stream.cli.commands.tools_dry_run import dry_run_command
from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import json_text, note, out, out_json
from noesium_stream.cli.session import (
    acting_name,
    asynchronous,
    deciding_name,
    json_option,
    log_option,
    opened,
)
from noesium_stream.cli.table import table
from noesium_stream.client.operate.tools import accept_definition, registered_tools, tools_named
from noesium_stream.clock import SystemClock, to_rfc3339
from noesium_stream.errors import ToolNotFoundError
from noesium_stream.escapes import escaped
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.trust.speaking import CLIENT
from noesium_stream.log import EventLog
from noesium_stream.tool.atomic import ToolSource
from noesium_stream.tool.definitions.differences import Difference, differences
from noesium_stream.tool.definitions.reading import tool_of_definition
from noesium_stream.tool.definitions.state import Definition, RegisteredTool

_HASH: Final = 12

_agent_option = click.option("-a", "--agent", "agent_type", metavar="TYPE", help="Only of this agent type.")


@click.group("tools")
def tools_command() -> None:
    """List the tools of agents, and accept what has changed about them."""


tools_command.add_command(call_command)
tools_command.add_command(dry_run_command)


@tools_command.command("list")
@_agent_option
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only with this tag. Repeatable.")
@click.option("--source", type=click.Choice([one.value for one in ToolSource]), help="Only from this source.")
@log_option
@json_option
@asynchronous
async def list_command(
    agent_type: str | None, tags: tuple[str, ...], source: str | None, log_url: str | None, as_json: bool
) -> None:
    """List tools: agent, source, side effects, permissions, hash of the definition, status.

    STATUS is accepted, or changed: another definition waits, see `noesium tools diff`.
    """
    async with opened(log_url) as log:
        found = [
            one
            for one in await _registered(log)
            if agent_type in (None, one.agent_type)
            and source in (None, one.current.value["source"])
            and set(tags) <= _tags(one)
        ]
        where = log.url
    if as_json:
        out_json([_as_json(one) for one in found])
    elif not found:
        note(f"There are no such tools on {where} yet.")
    else:
        table(("tool", "agent", "source", "side effects", "permissions", "hash", "status"), map(_row, found))


@tools_command.command("show")
@click.argument("name", metavar="NAME")
@_agent_option
@log_option
@json_option
@asynchronous
async def show_command(name: str, agent_type: str | None, log_url: str | None, as_json: bool) -> None:
    """Show a tool of each agent that has it: schemas, permissions, hash, since when, accepted by whom.

    NAME is its name or its id.
    """
    async with opened(log_url) as log:
        found = tools_named(await _registered(log), name, agent_type)
    if as_json:
        out_json([_as_json(one) for one in found])
        return
    for number, one in enumerate(found):
        if number:
            out("")
        _describe(one)


@tools_command.command("diff")
@click.argument("name", metavar="[NAME]", required=False)
@_agent_option
@log_option
@json_option
@asynchronous
async def diff_command(name: str | None, agent_type: str | None, log_url: str | None, as_json: bool) -> None:
    """Show what has changed about tools and waits to be accepted, field by field.

    Until then such a tool is not called. Something waits: exit code 1.
    """
    async with opened(log_url) as log:
        tools = await _registered(log)
    found = tools if name is None else tools_named(tools, name, agent_type)
    pending = [
        (one, one.pending)
        for one in found
        if one.pending is not None and agent_type in (None, one.agent_type)
    ]
    if as_json:
        out_json([_difference_json(one, waits) for one, waits in pending])
    elif not pending:
        note("Nothing waits to be accepted.")
    for one, waits in () if as_json else pending:
        _say_difference(one, waits)
    if pending:
        raise click.exceptions.Exit(FAILED)


@tools_command.command("accept")
@click.argument("name", metavar="NAME")
@click.option(
    "--hash", "digits", metavar="HASH", required=True, help="The definition's hash, as `diff` prints it."
)
@_agent_option
@click.option("--as", "by", metavar="NAME", help="Who accepts it. [default: your user name]")
@log_option
@asynchronous
async def accept_command(
    name: str, digits: str, agent_type: str | None, by: str | None, log_url: str | None
) -> None:
    """Accept the changed definition of a tool; workers call it from then on.

    HASH has to be that of the definition that waits now: at least its first 12 digits.
    """
    async with opened(log_url) as log:
        found = tools_named(await _registered(log), name, agent_type)
        waiting = [one for one in found if one.pending is not None] or found
        if len(waiting) > 1:
            raise ToolNotFoundError(
                f"Several agents have {name[:200]!r}: {', '.join(one.agent_type for one in waiting)}.",
                hint="Say whose: --agent TYPE, and the tool's id if one agent has two.",
            )
        [tool] = waiting
        now = await accept_definition(
            log,
            SystemClock(),
            configured_policy(log),
            tool,
            digits.lower(),
            producer=AgentRef(await acting_name(log, by), CLIENT),
            by=await deciding_name(log, by),
        )
    note(f"{now.tool_id} of {now.agent_type} is called by its definition {now.current.hash[:_HASH]} now")


async def _registered(log: EventLog) -> list[RegisteredTool]:
    return await registered_tools(log, SystemClock(), configured_policy(log))


def _tags(one: RegisteredTool) -> set[str]:
    return set(tool_of_definition(one.current.value).all_tags)


def _status(one: RegisteredTool) -> str:
    return "accepted" if one.pending is None else "changed"


def _row(one: RegisteredTool) -> tuple[str, ...]:
    has = one.current.value
    return (
        one.name,
        one.agent_type,
        has["source"],
        has["side_effect_class"],
        ", ".join(has["permissions"]) or "none",
        one.current.hash[:_HASH],
        _status(one),
    )


def _as_json(one: RegisteredTool) -> dict[str, Any]:
    return {
        "agent_type": one.agent_type,
        "tool_id": one.tool_id,
        "name": one.name,
        "status": _status(one),
        "current": _definition_json(one.current),
        "pending": None if one.pending is None else _definition_json(one.pending),
    }


def _definition_json(one: Definition) -> dict[str, Any]:
    return {
        "hash": one.hash,
        "since_ms": one.since_ms,
        "accepted_by": one.accepted_by,
        "event_id": one.event_id,
        "definition": one.value,
    }


def _describe(one: RegisteredTool) -> None:
    has, now = one.current.value, one.current
    out(escaped(f"{one.name} of {one.agent_type} ({one.tool_id} {has['version']}), {_status(one)}"))
    for line in has["description"].splitlines():
        out(f"  {escaped(line)}")
    accepted = "" if now.accepted_by is None else f", accepted by {now.accepted_by}"
    out(escaped(f"  definition {now.hash} since {to_rfc3339(now.since_ms)}{accepted}"))
    facts = {
        "side effects": has["side_effect_class"],
        "determinism": has["determinism_class"],
        "permissions": ", ".join(has["permissions"]) or "none",
        "time limit": f"{has['timeout_ms']} ms",
        "tags": ", ".join(tool_of_definition(has).all_tags),
        "labels": ", ".join(has["labels"]),
    }
    for name, value in facts.items():
        if value:
            out(escaped(f"  {name}: {value}"))
    for side in ("input", "output"):
        out(f"  {side} {escaped(json_text(has[f'{side}_schema']))}")
    if one.pending is not None:
        out(escaped(f"  {one.pending.hash} waits: noesium tools diff {one.name}"))


def _difference_json(one: RegisteredTool, waits: Definition) -> dict[str, Any]:
    return {
        "agent_type": one.agent_type,
        "tool_id": one.tool_id,
        "name": one.name,
        "current": one.current.hash,
        "pending": waits.hash,
        "since_ms": waits.since_ms,
        "differences": [
            {"path": it.path, "before": it.before, "after": it.after}
            for it in differences(one.current.value, waits.value)
        ],
    }


def _say_difference(one: RegisteredTool, waits: Definition) -> None:
    out(escaped(f"{one.name} of {one.agent_type} ({one.tool_id}), since {to_rfc3339(waits.since_ms)}"))
    for it in differences(one.current.value, waits.value):
        _say_field(it)
    out(escaped(f"  noesium tools accept {one.tool_id} --agent {one.agent_type} --hash {waits.hash}"))


def _say_field(it: Difference) -> None:
    out(f"  {escaped(it.path)}")
    if it.was_there:
        out(f"    - {escaped(json_text(it.before))}")
    if it.is_there:
        out(f"    + {escaped(json_text(it.after))}")
