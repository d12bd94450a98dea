"""`noesium verify`: replays recorded runs against code, or checks the signatures of an exported one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from noesium_stream.cli.commands.runs import offline
from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.replaying import graph_option, options_option, target_for
from noesium_stream.cli.session import asynchronous, json_option, log_option, opened, settings
from noesium_stream.client import Client, operate
from noesium_stream.client.proof.checks import verify_file
from noesium_stream.client.proof.grant_chain import broken_links
from noesium_stream.errors import ConfigError
from noesium_stream.event.signing import Verifier
from noesium_stream.log import EventLog

if TYPE_CHECKING:
    from noesium_stream.kernel.verify.verifier import Verdict


@click.command("verify")
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option(
    "--open", "all_open", is_flag=True, help="All open runs: which of them can go on with this code."
)
@click.option("-a", "--agent", "agent_type", metavar="TYPE", help="With --open: whose runs.")
@click.option(
    "--offline",
    "exported",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    help="Check the signatures of a run that `noesium export` wrote; no log and no code is needed. Several "
    "times for the runs of a tree: the grants that they hand on are checked as well.",
)
@click.option(
    "--public-keys",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    help="With --offline: the keys that are trusted; several times for several files. [default: the setting "
    "public_keys]",
)
@graph_option
@options_option
@log_option
@json_option
@asynchronous
async def verify_command(
    run_ids: tuple[str, ...],
    all_open: bool,
    agent_type: str | None,
    exported: tuple[Path, ...],
    public_keys: tuple[Path, ...],
    graph: str | None,
    options: tuple[str, ...],
    log_url: str | None,
    as_json: bool,
) -> None:
    """Replay recorded runs against code and print the first difference.

    No effect is performed and nothing is written. Every node runs again: effects, answers, signals and timers
    come from the recording, and calls, events, deltas, the next nodes and the result are compared with it.
    Work that a node's body does directly, not through step.effect, a model, a tool or another agent, is done
    again. With --graph it is the gate before a deploy. Exit code 1 if a run differs.

    --offline says who asked, who approved, what was done and how the run ended, as far as signatures prove
    it. Exit code 1 if a record is changed, missing, out of order, unsigned, or signed by another key.
    """
    if any(not run_id.strip() for run_id in run_ids):
        raise click.UsageError("A run id is empty.")
    if exported:
        if all_open or agent_type is not None or graph is not None or options or len(run_ids) > 1:
            raise click.UsageError("--offline takes one run id at most, --public-keys and --json.")
        if run_ids and len(exported) > 1:
            raise click.UsageError("A run id goes with one --offline.")
        return _offline(exported, public_keys, run_ids[0] if run_ids else None, as_json)
    if public_keys:
        raise click.UsageError("--public-keys goes with --offline.")
    if bool(run_ids) == all_open:
        raise click.UsageError("Give either run ids or --open.")
    async with opened(log_url) as log, Client(log) as client:
        if all_open:
            verdicts = await _open_runs(client, log, agent_type, graph, options)
        else:
            runs = [await client.get_run(run_id) for run_id in run_ids]
            verdicts = [
                await operate.replay.verify(run, target_for(log, graph, options, run.agent_type))
                for run in runs
            ]
    if as_json:
        out_json([{**asdict(verdict), "same": verdict.is_same} for verdict in verdicts])
    else:
        _show(verdicts, all_open)
    if not all(verdict.is_same for verdict in verdicts):
        raise click.exceptions.Exit(FAILED)
    return None


def _offline(
    exported: Sequence[Path], public_keys: Sequence[Path], run_id: str | None, as_json: bool
) -> None:
    verifier = Verifier() if public_keys else Verifier.from_file(settings().noesium.public_keys)
    for path in public_keys:
        for key in Verifier.from_file(path).keys.values():
            verifier.trust(key)
    verdicts = [verify_file(path, verifier, run_id) for path in exported]
    by_run = {verdict.head.run_id: verdict for verdict in verdicts}
    for run, problem in broken_links((run, verdict.grants) for run, verdict in by_run.items()):
        by_run[run].wrong("the grant", problem)
    if as_json:
        fields = [offline.as_fields(verdict) for verdict in verdicts]
        out_json(fields if len(fields) > 1 else fields[0])
    else:
        for verdict in verdicts:
            offline.show(verdict)
    if not all(verdict.is_proven for verdict in verdicts):
        raise click.exceptions.Exit(FAILED)


async def _open_runs(
    client: Client, log: EventLog, agent_type: str | None, graph: str | None, options: Sequence[str]
) -> list[Verdict]:
    if graph is None and agent_type is None:
        raise ConfigError(
            "It is not known whose open runs to verify.", hint="Give --graph MODULE[:NAME] or --agent TYPE."
        )
    target = target_for(log, graph, options, agent_type or "")
    return await operate.replay.verify_open(client, target, agent_type)


def _show(verdicts: Sequence[Verdict], all_open: bool) -> None:
    for verdict in verdicts:
        steps = f"{verdict.steps} step{'' if verdict.steps == 1 else 's'}"
        if verdict.is_same:
            good = "can go on" if all_open else f"as recorded ({verdict.status})"
            out(f"{verdict.run_id}  {good}, {steps}")
            if verdict.note is not None:
                out(f"  {verdict.note}")
            continue
        out(f"{verdict.run_id}  {'cannot go on' if all_open else f'differs ({verdict.status})'}")
        for line in str(verdict.difference).splitlines():
            out(f"  {line}")
    differing = sum(not verdict.is_same for verdict in verdicts)
    if all_open:
        runs = f"{len(verdicts)} open run{'' if len(verdicts) == 1 else 's'}"
        note(f"{runs}, {differing} of them cannot go on")
