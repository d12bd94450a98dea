"""`noesium signal` and `noesium cancel`: messages to open runs."""

from __future__ import annotations

import json
from typing import Any

import click

from noesium_stream.cli.output import note
from noesium_stream.cli.session import acting_name, asynchronous, given_run, log_option, opened
from noesium_stream.client import Client, Run
from noesium_stream.clock import to_rfc3339
from noesium_stream.errors import RunEndedError
from noesium_stream.event.rules.run_life import ENDINGS


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
@log_option
@asynchronous
async def cancel_command(run_id: str, reason: str | None, log_url: str | None) -> None:
    """Ask an open run to end; its worker does it at the next step."""
    async with opened(log_url) as log, Client(log, agent_id=await acting_name(log)) as client:
        run = await client.get_run(run_id)
        await _must_be_open(run)
        asked = await run.cancel_request()
        if asked is not None:
            when = to_rfc3339(asked.timestamp_ms)
            note(f"{run.id} is being cancelled already: {asked.producer.agent_id} asked for it at {when}")
            return
        await run.cancel(reason)
        note(f"asked {run.id} to end")


async def _must_be_open(run: Run) -> None:
    info = await run.info()
    if info.status in ENDINGS.values():
        raise RunEndedError(
            f"Run {run.id} has ended already: {info.status}.", hint=f"See: noesium show {run.id}"
        )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
