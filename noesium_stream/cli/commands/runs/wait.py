"""`noesium wait`: waits for a run's outcome."""

from __future__ import annotations

from contextlib import aclosing

import click

from noesium_stream.cli.answer import print_answer, result_json
from noesium_stream.cli.output import out_json
from noesium_stream.cli.session import asynchronous, given_run, json_option, log_option, opened
from noesium_stream.client import Client


@click.command("wait")
@click.argument("run_id", metavar="RUN", callback=given_run)
@click.option(
    "-t",
    "--timeout",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long at most; without it for ever.",
)
@log_option
@json_option
@asynchronous
async def wait_command(run_id: str, timeout: float | None, log_url: str | None, as_json: bool) -> None:
    """Wait until a run has ended, and print its result as `noesium run` does.

    Workers in other processes execute it. The result of an ended run is printed at once. Exit code 1: the run
    failed, was cancelled, or has no outcome in time; in that case it goes on.
    """
    async with opened(log_url) as log, Client(log) as client:
        run = await client.get_run(run_id)
        result = await run.result(timeout)
        if as_json:
            async with aclosing(run.events(follow=False)) as events:
                count = sum([1 async for _ in events])
            out_json(result_json(run.id, result, count, log.url))
        else:
            print_answer(result)
