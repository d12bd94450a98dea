"""`noesium show`: the causal tree of a run, across agents."""

from __future__ import annotations

from contextlib import aclosing, suppress
from dataclasses import asdict
from itertools import islice

import click

from noesium_stream.cli.drawing import draw
from noesium_stream.cli.follow_tree import follow_tree
from noesium_stream.cli.output import out, out_json
from noesium_stream.cli.session import (
    asynchronous,
    closing,
    find_run,
    given_run,
    json_option,
    log_option,
    on_log,
    opened,
    projections_folder,
    settings,
)
from noesium_stream.client import Client, Run
from noesium_stream.client.views.causal_tree import RunTree, causal_tree
from noesium_stream.client.views.run_list.run_list import WAITING
from noesium_stream.client.views.runs import DEFERRED
from noesium_stream.client.views.tree_questions import Allowed, allowed_by
from noesium_stream.client.views.waits import MOST_REASONS, wait_for_worker
from noesium_stream.errors import RunNotFoundError
from noesium_stream.event.envelope import EventEnvelope


@click.command("show")
@click.argument("run_id", metavar="[RUN]", required=False, callback=given_run)
@click.option("-f", "--follow", is_flag=True, help="Print the steps of the tree as they come, to RUN's end.")
@log_option
@json_option
@asynchronous
async def show_command(run_id: str | None, follow: bool, log_url: str | None, as_json: bool) -> None:
    """Show what a run did, across agents: who, what, when, how long; delegation is indented.

    A step that a `Send` has started is followed by its argument, a question by who answered it, and by which
    entry of its approvers, rule of the policy and key.

    With --follow each step of the run, and of the runs below it, is a line, indented by its depth: first what
    has happened so far, then what comes, until the run has ended. --json then prints an event a line.

    RUN is a run id or the beginning of one; default: the newest run.
    """
    loaded = settings(log_url)
    async with opened(log_url) as log, Client(log, index=projections_folder(loaded, None)) as client:
        run = await find_run(client, run_id)
        if follow:
            return await follow_tree(run.tree_reader(), run.id, on_log=on_log(loaded), as_json=as_json)
        events, allowed = await collect(run)
        tree = causal_tree(run.id, events, allowed)
        if tree.status in ("running", WAITING):
            await _add_worker(run, tree)
        await _add_deferrals(run, tree)
    if as_json:
        out_json(asdict(tree))
        return None
    for line in draw(tree):
        out(line)
    return None


async def _add_worker(run: Run, tree: RunTree) -> None:
    """Say of an open run that it waits for a worker, if nobody has its partition."""
    async with closing(run.records(follow=False)) as records:
        async for record in records:
            owner = await wait_for_worker(run.log, run.agent_type, record)
            if owner is not None:
                tree.status, tree.waits_for = WAITING, (*tree.waits_for, owner)
            return


async def _add_deferrals(run: Run, tree: RunTree) -> None:
    """Say why no worker can take up the run, or one that it has called."""
    if tree.status == "requested":
        with suppress(RunNotFoundError):  # its command is a dead letter
            info = await run.info()
            if info.status == DEFERRED:
                tree.status, tree.reason = info.status, info.reason
    for call in islice(tree.not_taken_up, MOST_REASONS):
        with suppress(RunNotFoundError):  # its command is not sent yet
            info = await run.other(call.agent_type, call.call_id).info()
            call.reason = info.reason if info.status == DEFERRED else None


async def collect(run: Run) -> tuple[list[EventEnvelope], dict[str, Allowed]]:
    """Read the events of a run and of all runs below it, and by event id what allowed an answer."""
    events: list[EventEnvelope] = []
    allowed: dict[str, Allowed] = {}
    async with aclosing(run.tree_reader().read(follow=False)) as records:
        async for _, record, event in records:
            events.append(event)
            found = allowed_by(record)
            if found is not None:
                allowed[event.event_id] = found
    # Without a record no worker has started it yet.
    return events or [command async for command in run.commands()], allowed
