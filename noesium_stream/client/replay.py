"""Verify, look into, fork and compare recorded runs.

Everything here reads journals; only `fork` writes, the command that makes the new run.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from noesium_stream.capability.resolution import in_range
from noesium_stream.client.client import Client
from noesium_stream.client.declared import check_value, declared_keys
from noesium_stream.client.run import Run
from noesium_stream.errors import CheckpointError, ConfigError, MigrationError, RunNotFoundError
from noesium_stream.event.standard import ForkRef, GraphRef
from noesium_stream.kernel.canonical_history import CanonicalStep, RecordedRun, canonical_history
from noesium_stream.kernel.fork import last_step
from noesium_stream.kernel.verify import UNVERSIONED, ReplayTarget, Verdict, begun_by, verify_run
from noesium_stream.kernel.verify_difference import NOTHING, Difference, first_difference, shown
from noesium_stream.kernel.verify_move import identity_of, planned
from noesium_stream.kernel.verify_parts import MOVED, pinned_to, simulated
from noesium_stream.kernel.verify_recording import superstep
from noesium_stream.kernel.verify_state import reduced_channels, state_at
from noesium_stream.kernel.verify_waiting import StillClock
from noesium_stream.worker.inherit import read_recorded

__all__ = [
    "RunsDiff",
    "check_step",
    "diff",
    "fork",
    "parse_setting",
    "recording",
    "set_path",
    "state_at",
    "verify",
    "verify_open",
]

_MOVABLE: Final = "can be moved by a migration"
_PART: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


async def recording(run: Run, graph: str | None = None) -> RecordedRun:
    """The run as its journal has it now.

    Raises:
        RunNotFoundError: no worker has taken it up yet, or there is no such run.
    """
    try:
        return await read_recorded(run.log, run.agent_type, run.id, graph)
    except CheckpointError as error:
        await run.info()
        raise RunNotFoundError(f"Run {run.id} has not begun yet.", hint=error.hint) from error


async def verify(run: Run, target: ReplayTarget) -> Verdict:
    """Replay a run against `target`; nothing is performed and nothing is written.

    Raises:
        ConfigError: the run is one of another agent.
        RunNotFoundError: there is nothing to replay yet.
    """
    check_agent(run, target)
    return await _verify(target, await recording(run))


async def _verify(target: ReplayTarget, run: RecordedRun) -> Verdict:
    """The verdict about a run; an open one of an older version is moved first, if it can be, in memory."""
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
    """Replay all open runs of an agent: whether they can go on with `target`.

    One that is pinned to another graph cannot, even if all that is recorded is the same: it waits for a
    worker that has its graph.

    Whose runs is what `agent_type` says, else the code: an agent's type, or what a graph alone is called.

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
    listed = await client.list(agent_type=kind)
    found = [info for info in listed if info.status in ("running", "parked")]
    runs = [await client.run(info.run_id) for info in sorted(found, key=lambda info: info.requested_ms)]
    recorded = [await recording(run) for run in runs]
    return [_pinned(await _verify(target, run), run, target.ref) for run in recorded]


def _pinned(verdict: Verdict, run: RecordedRun, ref: GraphRef) -> Verdict:
    """The verdict about an open run, with what else would keep a worker from going on with it."""
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


async def fork(
    client: Client, parent: Run, at: int, values: Mapping[str, Any], target: ReplayTarget | None = None
) -> Run:
    """Start a run that shares the parent's history up to superstep `at`, with other `values` there.

    Args:
        client: sends the command.
        parent: the run to branch off; open or ended.
        at: superstep; 0 is the beginning.
        values: path in the state → JSON value.
        target: the parent's code; needed to find paths.

    Raises:
        ConfigError: the parent has no such step, a path does not exist, a value is not of the declared
            type, or paths are given without code.
    """
    recorded = await recording(parent)
    check_step(recorded, at)
    _check_moved(recorded, at)
    channels: dict[str, Any] = {}
    reduced: frozenset[str] = frozenset()
    if values:
        if target is None:
            raise ConfigError(
                "Values are set in a state, and that takes the run's code.", hint="Give --graph."
            )
        check_agent(parent, target)
        state = copy.deepcopy(await state_at(target, recorded, at, moved=True))
        keys = declared_keys(target.graph)
        changed = [set_path(state, *item, declared=keys) for item in values.items()]
        channels = {name: state[name] for name in changed}
        for name, value in channels.items():
            check_value(target.graph, name, value)
        reduced = reduced_channels(target)
    ref = ForkRef(
        run_id=parent.id,
        step=at,
        capability_id=recorded.started.payload.get("capability_id"),
        values=channels,
        reduced=sorted(reduced & channels.keys()),
    )
    return await client.start(parent.agent_type, recorded.input, fork=ref)


def _check_moved(run: RecordedRun, at: int) -> None:
    """A fork goes on with the graph of today: it branches off where its run was moved to that, or later.

    Raises:
        ConfigError
    """
    moves = [item.event.payload for item in run.events if item.event.event_type == MOVED]
    if moves and at < moves[-1]["step"] - 1:
        version, first = moves[-1]["to_graph"]["version"], moves[-1]["step"] - 1
        raise ConfigError(
            f"Run {run.run_id} was moved to version {version} before step {first + 1}, and step {at} is "
            "one of an older version.",
            hint=f"Fork it at step {first} or later.",
        )


def set_path(state: dict[str, Any], path: str, value: Any, *, declared: Collection[str] = ()) -> str:
    """Change `state` at `path` (`items[2].text`); return the name of its first part.

    A key that is `declared` may be set without having a value yet.

    Raises:
        ConfigError: there is no such path.
    """
    parts = [name if name else int(index) for name, index in _PART.findall(path)]
    at: Any = state
    if len(parts) == 1 and parts[0] in declared:
        state.setdefault(str(parts[0]), None)
    try:
        for part in parts[:-1]:
            at = at[part]
        at[parts[-1]]
        at[parts[-1]] = value
    except (KeyError, IndexError, TypeError) as error:
        known = ", ".join(sorted({*state, *declared})) or "nothing"
        raise ConfigError(f"The state has no {path!r} at this step.", hint=f"It has {known}.") from error
    return str(parts[0])


@dataclass(frozen=True, slots=True)
class RunsDiff:
    """How far two runs are the same.

    Attributes:
        same_steps: how many supersteps they share from the beginning.
        difference: the first difference; None where they did the same. `recorded` is the left one.
    """

    left: str
    right: str
    same_steps: int
    difference: Difference | None


def diff(left: RecordedRun, right: RecordedRun) -> RunsDiff:
    """Where two runs part, ids and times aside."""
    first, second = canonical_history(left), canonical_history(right)
    ours, theirs = ({(step.step, step.path): step for step in side.steps} for side in (first, second))
    shared = -1
    difference = _compare(0, None, "the input", first.input, second.input)
    for key in sorted(ours.keys() | theirs.keys(), key=lambda key: (superstep(key), key)):
        if difference is not None:
            break
        difference = _compare_steps(ours.get(key), theirs.get(key))
        shared = superstep(key) - (difference is not None)
    if difference is None and first.outcome != second.outcome:
        last = first.steps[-1] if first.steps else None
        difference = _compare(last.step if last else 0, None, "the outcome", first.outcome, second.outcome)
    return RunsDiff(left.run_id, right.run_id, max(shared, 0), difference)


def _compare_steps(left: CanonicalStep | None, right: CanonicalStep | None) -> Difference | None:
    step = left or right
    if step is None:
        return None
    number, node = superstep((step.step, step.path)), step.node
    if left is None or right is None:
        sides = [NOTHING if side is None else side.node for side in (left, right)]
        return Difference(number, node, "only one of them runs it", *sides)
    if left.node != right.node:
        return Difference(number, node, "another node runs here", left.node, right.node)
    for name in ("failures", "calls", "events", "completed", "delta"):
        found = _compare(number, node, f"its {name}", getattr(left, name), getattr(right, name))
        if found is not None:
            return found
    return None


def _compare(step: int, node: str | None, what: str, left: Any, right: Any) -> Difference | None:
    found = first_difference(left, right)
    if found is None:
        return None
    path, one, other = found
    at = f" at {path}" if path else ""
    return Difference(step, node, f"{what} differs{at}", shown(one), shown(other))


def parse_setting(text: str) -> tuple[str, Any]:
    """`PATH=VALUE` as a path and a JSON value; what is no JSON is text.

    Raises:
        ConfigError: there is no `=`, or no path before it.
    """
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"{text!r} is no PATH=VALUE.")
    try:
        return path.strip(), json.loads(value)
    except ValueError:
        return path.strip(), value
