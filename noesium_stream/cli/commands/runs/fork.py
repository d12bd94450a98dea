"""`noesium fork`: starts a run that shares another run's history up to a step."""

from __future__ import annotations

import click

from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.replaying import graph_option, options_option, target_for
from noesium_stream.cli.session import (
    acting_name,
    asynchronous,
    given_run,
    json_option,
    log_option,
    on_log,
    opened,
)
from noesium_stream.cli.session import settings as effective
from noesium_stream.client import Client
from noesium_stream.client.operate.fork import fork, parse_setting


@click.command("fork")
@click.argument("run_id", metavar="RUN", callback=given_run)
@click.option(
    "--at", "step", type=click.IntRange(0), required=True, help="After which superstep; 0: the beginning."
)
@click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="Another value in the state there."
)
@graph_option
@options_option
@log_option
@json_option
@asynchronous
async def fork_command(
    run_id: str,
    step: int,
    settings: tuple[str, ...],
    graph: str | None,
    options: tuple[str, ...],
    log_url: str | None,
    as_json: bool,
) -> None:
    """Start a run that shares another one's history up to a step, and print its id.

    The shared steps are not executed again. PATH is a path in the state (items[2].text). VALUE is JSON; any
    other text is taken as text. A worker of the agent executes the new run.
    """
    values = dict(parse_setting(setting) for setting in settings)
    async with opened(log_url) as log, Client(log, agent_id=await acting_name(log)) as client:
        parent = await client.get_run(run_id)
        target = target_for(log, graph, options, parent.agent_type) if values or graph else None
        run = await fork(client, parent, step, values, target)
    if as_json:
        out_json({"run_id": run.id, "parent_run_id": parent.id, "step": step})
    else:
        out(run.id)
        follow = f"noesium events --follow {run.id}{on_log(effective(log_url))}"
        note(f"branches off {parent.id} after step {step}; follow it: {follow}")
