"""Forks a run: another one that shares its history up to a step, started or only tried in memory."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Collection, Mapping
from contextvars import copy_context
from typing import Any, Final

from noesium_stream.agent import BaseAgent
from noesium_stream.client.client import Client
from noesium_stream.client.operate.replay import check_agent, check_step, recording
from noesium_stream.client.operate.state_keys import check_value, declared_keys
from noesium_stream.client.run import Run
from noesium_stream.errors import CheckpointError, ConfigError
from noesium_stream.event.sealing.seal import SUBJECT
from noesium_stream.event.standard import ForkRef
from noesium_stream.event.trust.grants import grant_in
from noesium_stream.kernel.dry_run.dry_run import DryRun, dry_run
from noesium_stream.kernel.recording.fork import check_questions, provenance_at, signals_taken
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.kernel.verify.state_at import reduced_channels, state_at
from noesium_stream.kernel.verify.verifier import ReplayTarget
from noesium_stream.kernel.verify.versions import MOVED

_PART: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


async def fork(
    client: Client, parent: Run, at: int, values: Mapping[str, Any], target: ReplayTarget | None = None
) -> Run:
    """Start a run that shares the parent's history up to superstep `at`, with other `values` there.

    It is a run as any other: what comes after that step is performed, also effects that the parent has made.
    `dry_fork` shows them first.

    Args:
        client: sends the command.
        parent: the run to branch off; open or ended.
        at: superstep; 0 is the beginning.
        values: JSON values by path in the state.
        target: the parent's code; needed to resolve paths.

    Raises:
        ConfigError: the parent has no such step, or has asked certain people for approval by then; a path
            does not exist, a value is not of the declared type, or paths are given without code.
    """
    recorded, ref = await _branch(parent, at, values, target)
    # A fork may do no more than the run that it branches off.
    grant = grant_in(recorded.started.payload)
    limits = (None, None) if grant is None else (grant.permissions, grant.mode)
    return await client.start(
        parent.agent_type,
        recorded.input,
        fork=ref,
        permissions=limits[0],
        mode=limits[1],
        subject=recorded.command.metadata.get(SUBJECT),
    )


async def dry_fork(parent: Run, at: int, values: Mapping[str, Any], target: ReplayTarget) -> DryRun:
    """Execute a fork in memory, up to the first results that only the outside world could give.

    Nothing is written, and no new effect, call of another agent or question is made; only effects of the
    class PURE are called. What the parent got at the same place for the same call, the fork gets as well. The
    agent of the code is started if a PURE effect is called.

    Raises:
        ConfigError: as `fork`, or the code is another agent's.
    """
    check_agent(parent, target)
    recorded, ref = await _branch(parent, at, values, target)
    agent = _OnceStarted(target.agent)
    try:
        return await dry_run(target, recorded, ref, agent.start)
    finally:
        await agent.stop()


class _OnceStarted:
    """An agent that is started when the first of its PURE effects is called; others wait for the same start.

    If the start fails, all calls fail with its error.
    """

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._starting: asyncio.Task[None] | None = None
        self._context = copy_context()
        """Outside of any step: the start is no part of the one that needs it first."""

    async def start(self) -> None:
        """Return when the agent has started."""
        if not isinstance(self._agent, BaseAgent):
            return
        if self._starting is None:
            self._starting = asyncio.create_task(self._agent.start(), context=self._context)
        await asyncio.shield(self._starting)  # a caller that is cancelled leaves the start to the others

    async def stop(self) -> None:
        """Stop the agent if it has started; a start that is under way is cancelled."""
        starting = self._starting
        if starting is None:
            return
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            await self._agent.stop()


async def _branch(
    parent: Run, at: int, values: Mapping[str, Any], target: ReplayTarget | None
) -> tuple[RecordedRun, ForkRef]:
    """The parent's recording, and where a fork branches off with which values."""
    recorded = await recording(parent)
    check_step(recorded, at)
    _check_moved(recorded, at)
    try:
        check_questions(recorded, at)
    except CheckpointError as error:
        raise ConfigError(f"{error.message[0].upper()}{error.message[1:]}", hint=error.hint) from error
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
    provenance = provenance_at(recorded, at)
    ref = ForkRef(
        run_id=parent.id,
        step=at,
        capability_id=recorded.started.payload.get("capability_id"),
        values=channels,
        reduced=sorted(reduced & channels.keys()),
        taken=signals_taken(recorded, at),
        labels=sorted(provenance.until(at)),
        said=provenance.said_until_now(list(values.values())),
    )
    return recorded, ref


def _check_moved(run: RecordedRun, at: int) -> None:
    """Refuse to fork before the run's migration: a fork goes on with the present graph.

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


def parse_setting(text: str) -> tuple[str, Any]:
    """Parse `PATH=VALUE` into a path and a JSON value; a value that is not JSON is text.

    Raises:
        ConfigError: there is no `=`, or no path before it.
    """
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(
            f"{text!r} is no PATH=VALUE.", hint="Write, for example, amount=20, or items[2].text=good."
        )
    try:
        return path.strip(), json.loads(value)
    except (ValueError, RecursionError):
        return path.strip(), value
