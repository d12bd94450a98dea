"""`noesium signal` and `noesium cancel`: messages to open runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

import click

from noesium_stream.cli.commands.runs.run_tree import ends_of, unstopped_lines
from noesium_stream.cli.exits import FAILED, OK
from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.session import (
    acting_name,
    asynchronous,
    given_run,
    json_option,
    log_option,
    opened,
)
from noesium_stream.client import Client, Run
from noesium_stream.client.views.tree_end import TreeEnd
from noesium_stream.clock import to_rfc3339
from noesium_stream.errors import RunEndedError
from noesium_stream.event.rules.run_life import ENDINGS

PATIENCE_S: Final = 5.0
"""Time until `cancel --wait` says first for which runs it waits, in seconds; then each time twice as long."""


@click.command("signal")
@click.argument("run_id", metavar="RUN", callback=given_run)
@click.argument("name")
@click.argument("value", default="null")
@log_option
@asynchronous
async def signal_command(run_id: str, name: str, value: str, log_url: str | None) -> None:
    """Send a message to an open run.

    VALUE is JSON; any other text is sent as text. The message waits on the log until the run asks for it.
    """
    async with opened(log_url) as log, Client(log, agent_id=await acting_name(log)) as client:
        run = await client.get_run(run_id)
        await _must_be_open(run)
        await run.signal(name, _value(value))
        note(f"sent {name} to {run.id}; it waits on the log until the run asks for a signal of that name")


@click.command("cancel")
@click.argument("run_id", metavar="RUN", callback=given_run)
@click.option("--reason", help="Why; it is recorded with the run.")
@click.option("--wait", is_flag=True, help="Wait until all runs of its tree have ended; print them.")
@click.option(
    "-t",
    "--timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="With --wait: how long at most; without it for ever.",
)
@log_option
@json_option
@click.pass_context
@asynchronous
async def cancel_command(
    ctx: click.Context,
    run_id: str,
    reason: str | None,
    wait: bool,
    timeout: float | None,
    log_url: str | None,
    as_json: bool,
) -> None:
    """Ask an open run, and all runs below it, to end; their workers do it at the next step.

    With --wait the command returns when each of them has ended, prints the tree with their ends, and names
    what was not stopped: calls to the outside in flight or of unknown outcome, and runs that were done
    before. Exit code 1: the time is over and runs are still open; they are named with what they wait for.
    """
    if not wait and (timeout is not None or as_json):
        raise click.UsageError("--timeout and --json go with --wait.")
    async with opened(log_url) as log, Client(log, agent_id=await acting_name(log)) as client:
        run = await client.get_run(run_id)
        if wait:
            ctx.exit(await _cancel_and_wait(run, reason, timeout, as_json))
        await _must_be_open(run)
        asked = await run.cancel_request()
        if asked is not None:
            when = to_rfc3339(asked.timestamp_ms)
            note(f"{run.id} is being cancelled already: {asked.producer.agent_id} asked for it at {when}")
            return
        await run.cancel(reason)
        note(f"asked {run.id} to end")


async def _cancel_and_wait(run: Run, reason: str | None, timeout: float | None, as_json: bool) -> int:
    """Cancel a tree, print how it has ended, and return the exit code."""
    wait_s = PATIENCE_S if timeout is None else min(PATIENCE_S, timeout)
    tree = await run.cancel_tree(reason, timeout=wait_s)
    if not tree.asked:
        raise _has_ended(run, tree.runs[0].status)
    waited_s = wait_s
    while not tree.ended and (timeout is None or waited_s < timeout):
        note("waiting for runs that are still open:\n" + "\n".join(unstopped_lines(tree, "open")))
        wait_s = 2 * wait_s if timeout is None else min(2 * wait_s, timeout - waited_s)
        waited_s += wait_s
        tree = await run.tree_end(wait_s)
    if as_json:
        out_json({**asdict(tree), "ended": tree.ended})
    else:
        _print(tree)
    return OK if tree.ended else FAILED


def _print(tree: TreeEnd) -> None:
    for line in ends_of(tree):
        out(line)
    lines = unstopped_lines(tree)
    if lines:
        note("not stopped:\n" + "\n".join(lines))
    if not tree.ended:
        left = sum(not run.ended for run in tree.runs)
        note(f"{left} of {len(tree.runs)} runs are still open; they end by themselves once they can")


async def _must_be_open(run: Run) -> None:
    info = await run.info()
    if info.status in ENDINGS.values():
        raise _has_ended(run, info.status)


def _has_ended(run: Run, status: str) -> RunEndedError:
    return RunEndedError(f"Run {run.id} has ended already: {status}.", hint=f"See: noesium show {run.id}")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
