"""`noesium taint`: where the arguments of a run's tool calls come from, and what another policy says."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import click

from noesium_stream.cli.exits import EXIT_CODES, FAILED
from noesium_stream.cli.output import note, out_json
from noesium_stream.cli.session import asynchronous, find_run, given_run, json_option, log_option, opened
from noesium_stream.cli.table import table
from noesium_stream.client import Client
from noesium_stream.event.trust.policy import read_policy
from noesium_stream.tool.recorded_calls import RecordedToolCall, recorded_tool_calls
from noesium_stream.tool.verdict import Allowed

_HEADER: Final = ("call", "tool", "arguments from", "result from", "was", "policy")


@click.command("taint", epilog=EXIT_CODES)
@click.argument("run_id", metavar="[RUN]", required=False, callback=given_run)
@click.option(
    "--policy",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also say what this policy says of each call that was made.",
)
@log_option
@json_option
@asynchronous
async def taint_command(run_id: str | None, path: Path | None, log_url: str | None, as_json: bool) -> None:
    """Show where the arguments of a run's tool calls come from.

    RUN is a run id or the beginning of one; default: the newest run.

    Labels such as web, document or mcp:NAME are folded from the run's events. With --policy each call that
    was made is judged by the rules of that file, with these labels; exit code 1: it refuses one of them.
    """
    policy = None if path is None else read_policy(path)
    async with opened(log_url) as log, Client(log) as client:
        run = await find_run(client, run_id)
        async with aclosing(run.events(follow=False)) as events:
            calls = recorded_tool_calls([event async for event in events], policy)
    if as_json:
        out_json({"run_id": run.id, "calls": [_json(call) for call in calls]})
    elif not calls:
        note(f"Run {run.id} has called no tools.")
    else:
        below = [_why(call) for call in calls]
        table(
            ("call", "tool", "arguments from", "result from", "was", "policy"), map(_row, calls), below=below
        )
    if any(call.would_be_refused for call in calls):
        raise click.exceptions.Exit(FAILED)


def _row(call: RecordedToolCall) -> tuple[str, ...]:
    arguments = "; ".join(f"{name}: {', '.join(labels)}" for name, labels in call.labels.items())
    made = "made" if call.was_made else "refused"
    return (
        call.call_id[:8],
        call.tool_name,
        arguments or "-",
        ", ".join(call.result_labels) or "-",
        made,
        _says(call) or "-",
    )


def _says(call: RecordedToolCall) -> str:
    """What the policy says of a call that was made."""
    return call.says if call.was_made else ""


def _why(call: RecordedToolCall) -> str:
    verdict = call.verdict if call.was_made else None
    return "" if verdict is None or isinstance(verdict, Allowed) else verdict.reason


def _json(call: RecordedToolCall) -> dict[str, Any]:
    verdict = call.verdict if call.was_made else None
    return {
        "call_id": call.call_id,
        "event_id": call.event_id,
        "tool_name": call.tool_name,
        "tool_id": call.tool_id,
        "was_made": call.was_made,
        "labels": {name: list(labels) for name, labels in call.labels.items()},
        "result_labels": list(call.result_labels),
        "verdict": _says(call) or None,
        "rule": None if verdict is None else verdict.rule,
        "reason": _why(call) or None,
    }
