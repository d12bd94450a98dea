"""`noesium replay`: the state of a run after one of its steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from noesium_stream.cli.output import note, out_json
from noesium_stream.cli.replaying import graph_option, options_option, target_for
from noesium_stream.cli.session import asynchronous, given_run, log_option, opened
from noesium_stream.client import Client, operate
from noesium_stream.kernel.recording.recorded_run import RecordedRun, dump_history
from noesium_stream.private_files import write_text


@click.command("replay")
@click.argument("run_id", metavar="RUN", callback=given_run)
@click.option(
    "--to", "step", type=click.IntRange(0), help="The superstep; 0 is the beginning. [default: the last]"
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the run's history to this file instead, for the pytest plugin (NAME.history.jsonl).",
)
@graph_option
@options_option
@log_option
@asynchronous
async def replay_command(
    run_id: str,
    step: int | None,
    save: Path | None,
    graph: str | None,
    options: tuple[str, ...],
    log_url: str | None,
) -> None:
    """Print the state of a run after one of its steps, as JSON.

    Its graph folds the recorded deltas again; no node runs.
    """
    async with opened(log_url) as log, Client(log) as client:
        run = await client.get_run(run_id)
        recorded = await operate.replay.recording(run)
        at = operate.replay.last_step(recorded) if step is None else step
        operate.replay.check_step(recorded, at)
        target = target_for(log, graph, options, run.agent_type)
        operate.replay.check_agent(run, target)
        if save is not None:
            return _save(save, replace(recorded, graph=target.reference))
        return out_json(await operate.replay.state_at(target, recorded, at))


def _save(path: Path, recorded: RecordedRun) -> None:
    write_text(path, dump_history(recorded))
    note(f"wrote {len(recorded.events)} events to {path}")
