"""`noesium diff`: the first difference between two runs."""

from __future__ import annotations

from dataclasses import asdict

import click

from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.session import asynchronous, given_run, json_option, log_option, opened
from noesium_stream.client import Client, operate
from noesium_stream.client.operate.diff import diff
from noesium_stream.kernel.recording.recorded_run import RecordedRun


@click.command("diff")
@click.argument("left_id", metavar="RUN", callback=given_run)
@click.argument("right_id", metavar="RUN", callback=given_run)
@log_option
@json_option
@asynchronous
async def diff_command(left_id: str, right_id: str, log_url: str | None, as_json: bool) -> None:
    """Compare two runs step by step and print where they part.

    Ids, times and the order of calls within a step do not count. Exit code 1 where they differ.
    """
    async with opened(log_url) as log, Client(log) as client:
        left = await operate.replay.recording(await client.get_run(left_id))
        right = await operate.replay.recording(await client.get_run(right_id))
    found = diff(left, right)
    for one, other in ((left, right), (right, left)):
        said = _set_in(one, other)
        if said is not None:
            note(said)
    steps = f"{found.same_steps} step{'' if found.same_steps == 1 else 's'}"
    if as_json:
        out_json(asdict(found))
    elif found.difference is None:
        out(f"the same, {steps}")
    else:
        lines = str(found.difference).splitlines()
        out(f"the same for {steps}")
        out(lines[0])
        out(f"  {found.left}  {found.difference.recorded}")
        out(f"  {found.right}  {found.difference.now}")
    if found.difference is not None:
        raise click.exceptions.Exit(FAILED)


def _set_in(fork: RecordedRun, parent: RecordedRun) -> str | None:
    """Describe the values set in the initial state of a fork of the other run; None: nothing was set."""
    ref = fork.started.payload.get("forked_from")
    if not ref or ref["run_id"] != parent.run_id or not ref.get("values"):
        return None
    keys = ", ".join(sorted(ref["values"]))
    return f"{fork.run_id} branches off {parent.run_id} after step {ref['step']}, where {keys} was set"
