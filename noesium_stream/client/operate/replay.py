"""Reads recorded runs and verifies them against code."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from noesium_stream.capabilities.version import in_range
from noesium_stream.client.client import Client
from noesium_stream.client.run import Run
from noesium_stream.errors import (
    CheckpointError,
    ConfigError,
    ErasureError,
    MigrationError,
    RunNotFoundError,
)
from noesium_stream.event.sealing.seal import is_erased
from noesium_stream.event.standard import GraphRef
from noesium_stream.kernel.recording.end_of_recording import StillClock
from noesium_stream.kernel.recording.fork import last_step
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.kernel.verify.difference import Difference
from noesium_stream.kernel.verify.moves import identity_of, planned
from noesium_stream.kernel.verify.state_at import state_at
from noesium_stream.kernel.verify.verifier import UNVERSIONED, ReplayTarget, Verdict, begun_by, verify_run
from noesium_stream.kernel.verify.versions import pinned_to, simulated
from noesium_stream.worker.runs.fork_history import read_recorded

__all__ = ["check_agent", "check_step", "last_step", "recording", "state_at", "verify", "verify_open"]

_MOVABLE: Final = "can be moved by a migration"
_OPEN: Final = ("running", "waiting", "stranded")


async def recording(run: Run, graph: str | None = None) -> RecordedRun:
    """Read a run from its journal as of now.

    Raises:
        RunNotFoundError: no worker has started it yet, or there is no such run.
        ErasureError: its data subject was erased.
    """
    try:
        found = await read_recorded(run.log, run.agent_type, run.id, graph)
    except CheckpointError as error:
        await run.info()
        raise RunNotFoundError(f"Run {run.id} has not begun yet.", hint=error.hint) from error
    if any(is_erased(event) for event in (*found.shared, *(item.event for item in found.events))):
        raise ErasureError(
            f"What run {run.id} was about is erased: nothing is left of it that could be replayed.",
            hint="`noesium show` prints its steps and times.",
        )
    return found


async def verify(run: Run, target: ReplayTarget) -> Verdict:
    """Replay a run against `target`; no effect is called and nothing is written.

    Raises:
        ConfigError: the run belongs to another agent.
        RunNotFoundError: there is nothing to replay yet.
    """
    check_agent(run, target)
    return await _verify(target, await recording(run))


async def _verify(target: ReplayTarget, run: RecordedRun) -> Verdict:
    """Replay a run and return the verdict; first migrate an open run of an older version, in memory."""
    line = () if target.versions is None else target.versions.since(pinned_to(run).model_dump())
    if len(line) < 2 or run.terminal is not None:
        return await verify_run(target, run, in_range)
    events = (*run.shared, *(item.event for item in run.events))
    try:
        moves = await planned(line, run, events, begun_by(target, run))
    except MigrationError as error:
        verdict = await verify_run(target, run, in_range)
        return replace(verdict, note=f"cannot be moved (yet): {error.message}")
    identity = identity_of(run)
    made = [
        move.to_envelope(identity.agent, identity.trace, None, clock=StillClock(events[-1].timestamp_ms))
        for move in moves
    ]
    verdict = await verify_run(target, simulated(run, made), in_range)
    way = " to ".join(version.ref.version for version in line)
    return replace(verdict, note=f"{_MOVABLE} before step {moves[-1].step}: {way}")


async def verify_open(client: Client, target: ReplayTarget, agent_type: str | None = None) -> list[Verdict]:
    """Replay all open runs of an agent, to find out whether they can go on with `target`.

    A run that is pinned to another graph cannot, even if its replay shows no difference: it waits for a
    worker that has its graph.

    The runs are those of `agent_type`; by default the code names the type: the agent's type, or the name of
    a bare graph.

    Raises:
        ConfigError: this log has no such agent.
    """
    kind = agent_type or target.agent_type or target.ref.graph_id
    known = await client.agent_types()
    if kind not in known:
        raise ConfigError(
            f"There is no agent of type {kind} on {client.log.url}.",
            hint=f"It has {', '.join(known) or 'none'}; say which one with --agent TYPE.",
        )
    listed = await client.list_runs(agent_type=kind)
    found = [info for info in listed if info.status in _OPEN and info.started_ms is not None]
    runs = [await client.get_run(info.run_id) for info in sorted(found, key=lambda info: info.requested_ms)]
    recorded = [await recording(run) for run in runs]
    return [_pinned(await _verify(target, run), run, target.ref) for run in recorded]


def _pinned(verdict: Verdict, run: RecordedRun, ref: GraphRef) -> Verdict:
    """Add to an open run's verdict that its pinned graph would keep a worker from going on with it."""
    if verdict.note is not None and verdict.note.startswith(_MOVABLE):
        return verdict
    pinned = pinned_to(run)
    same_version = ref.version in (pinned.version, UNVERSIONED)
    if not verdict.is_same or (same_version and pinned.fingerprint == ref.fingerprint):
        return verdict
    what = verdict.note or "it is pinned to another graph, and waits for a worker that has it"
    shapes = [f"version {it.version}, fingerprint {it.fingerprint[:8]}" for it in (pinned, ref)]
    return replace(verdict, difference=Difference(0, None, what, *shapes))


def check_agent(run: Run, target: ReplayTarget) -> None:
    """Refuse to replay a run with the code of another agent.

    Raises:
        ConfigError
    """
    if target.agent_type is not None and run.agent_type != target.agent_type:
        raise ConfigError(
            f"Run {run.id} is one of {run.agent_type}, and {target.reference or 'the code'} is "
            f"{target.agent_type}."
        )


def check_step(run: RecordedRun, step: int) -> None:
    """Refuse a superstep that the run has not completed.

    Raises:
        ConfigError
    """
    last = last_step(run)
    if not 0 <= step <= last:
        raise ConfigError(
            f"Run {run.run_id} has no completed step {step}.",
            hint=f"It has completed the steps 0 (its beginning) to {last}.",
        )
