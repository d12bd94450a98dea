"""`noesium tools dry-run`: what a policy would say of the tool calls of a recorded run."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import click

from noesium_stream.capabilities.configured_policy import configured_policy
from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import json_text, note, out_json
from noesium_stream.cli.session import asynchronous, find_run, given_run, json_option, log_option, opened
from noesium_stream.cli.table import table
from noesium_stream.client import Client
from noesium_stream.errors import ConfigError
from noesium_stream.escapes import escaped
from noesium_stream.event.trust.policy import read_policy
from noesium_stream.tool.recorded_calls import RecordedToolCall, recorded_tool_calls
from noesium_stream.tool.verdict import Allowed, Ask

_SHOWN = 60


@click.command("dry-run")
@click.argument("run_id", metavar="[RUN]", required=False, callback=given_run)
@click.option(
    "--policy",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The policy to judge by. [default: the configured one]",
)
@log_option
@json_option
@asynchronous
async def dry_run_command(run_id: str | None, path: Path | None, log_url: str | None, as_json: bool) -> None:
    """Say what a policy would allow of the tool calls of a run; nothing is called.

    RUN is a run id or the beginning of one; default: the newest run. What the agent's class allows is not on
    the log: the policy alone is asked. It refuses a call that was made: exit code 1.
    """
    async with opened(log_url) as log, Client(log) as client:
        policy = read_policy(path) if path is not None else configured_policy(log)
        if policy is None:
            raise ConfigError("There is no policy to judge by.", hint="Name one with --policy FILE.")
        run = await find_run(client, run_id)
        async with aclosing(run.events(follow=False)) as events:
            calls = recorded_tool_calls([event async for event in events], policy)
    if as_json:
        out_json([_as_json(call) for call in calls])
    elif calls:
        rows = [
            (
                escaped(call.tool_name),
                escaped(json_text(call.arguments))[:_SHOWN],
                call.outcome,
                said(call)[0],
                said(call)[1],
            )
            for call in calls
        ]
        table(("tool", "arguments", "then", "now", "why"), rows)
    else:
        note("The run has called no tools.")
    if any(call.would_be_refused for call in calls):
        raise click.exceptions.Exit(FAILED)


def said(call: RecordedToolCall) -> tuple[str, str]:
    """What the policy says of a call, and why."""
    verdict = call.verdict
    if isinstance(verdict, Allowed):
        return "allowed", verdict.rule
    if isinstance(verdict, Ask):
        who = f" by {', '.join(verdict.approvers)}" if verdict.approvers else ""
        return f"asked{who}", verdict.rule
    return ("denied", verdict.reason) if verdict is not None else ("", "")


def _as_json(call: RecordedToolCall) -> dict[str, Any]:
    now, why = said(call)
    return {
        "call_id": call.call_id,
        "tool": call.tool_name,
        "input": call.arguments,
        "labels": {name: list(found) for name, found in call.labels.items()},
        "then": call.outcome,
        "now": now.partition(" ")[0],
        "why": why,
    }
