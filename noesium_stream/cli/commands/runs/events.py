"""`noesium events`: the events in a run's journal."""

from __future__ import annotations

from contextlib import aclosing
from textwrap import indent

import click

from noesium_stream.cli.eventline import event_line
from noesium_stream.cli.output import out, out_json, out_lines
from noesium_stream.cli.session import asynchronous, find_run, given_run, json_option, log_option, opened
from noesium_stream.client import Client


@click.command("events")
@click.argument("run_id", metavar="[RUN]", required=False, callback=given_run)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("-v", "--verbose", is_flag=True, help="With the tracebacks of nodes that failed.")
@log_option
@json_option
@asynchronous
async def events_command(
    run_id: str | None, follow: bool, verbose: bool, log_url: str | None, as_json: bool
) -> None:
    """Print the events of a run in the order of its journal.

    RUN is a run id or the beginning of one; default: the newest run. --json prints one JSON object a line.
    """
    async with opened(log_url) as log, Client(log) as client:
        run = await find_run(client, run_id)
        async with aclosing(run.events(follow=follow)) as events:
            async for event in events:
                if as_json:
                    out_json(event.to_dict(), lines=True)
                else:
                    out(event_line(event))
                    if verbose and event.payload.get("traceback"):
                        out_lines(indent(event.payload["traceback"], "    "))
