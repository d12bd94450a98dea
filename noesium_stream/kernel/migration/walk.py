"""The position of a run in the graph that it was begun with: found by walking the graph, without new events.

The graph's reducers fold the recorded deltas, and its edges decide which nodes come next. The walk ends where
a node without a recorded end would begin.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langgraph._internal._typing import MISSING
from langgraph.channels.named_barrier_value import NamedBarrierValue, NamedBarrierValueAfterFinish

from noesium_stream.clock import Clock
from noesium_stream.errors import MigrationError, brief
from noesium_stream.kernel.graph.resume import ResumePoint
from noesium_stream.kernel.journal import RunIdentity
from noesium_stream.kernel.migration.migration import Version
from noesium_stream.kernel.recording.recorded_journal import RecordedJournal
from noesium_stream.kernel.run_history import RunHistory

_TASKS = "__pregel_tasks"
_START = "__start__"


def _walked(history: RunHistory) -> RunHistory:
    """The ends of nodes only. A node that has begun and not ended begins again, and there the walk ends."""
    return RunHistory(
        started=history.started,
        migrated=history.migrated,
        last_event_id=history.last_event_id,
        entered={key: event for key, event in history.entered.items() if key in history.completed},
        completed=dict(history.completed),
        failed={
            key: event
            for key, event in history.failed.items()
            if key not in history.completed and event.payload.get("retry_in_ms") is None
        },
        steps={step: list(done) for step, done in history.steps.items()},
        checkpoints=set(history.checkpoints),
    )


async def stand(
    version: Version, history: RunHistory, identity: RunIdentity, clock: Clock, initial_state: Any
) -> ResumePoint:
    """The run's position in the graph of `version`.

    Raises:
        MigrationError: the graph does not accept the recorded values.
    """
    try:
        return await version.durable.walk(RecordedJournal(_walked(history), identity, clock), initial_state)
    except Exception as error:
        raise MigrationError(
            f"The graph {version.ref.graph_id} {version.ref.version} cannot take what the run has recorded: "
            f"{type(error).__name__}: {brief(error)}",
            hint="`noesium verify --graph` of that version says where it parts from the log.",
        ) from error


def due(version: Version, point: ResumePoint) -> list[str]:
    """The nodes that the graph runs in the superstep of `point`.

    Raises:
        MigrationError: a `Send` runs one of them.
    """
    values = point.checkpoint["channel_values"]
    sends = values.get(_TASKS) or ()
    if sends:
        nodes = ", ".join(sorted({send.node for send in sends}))
        raise MigrationError(
            f"The node {nodes} is run by a Send in step {point.step}, and a Send cannot be moved.",
            hint="The run can be moved when a worker with its graph has finished that step.",
        )
    return sorted(
        name
        for name, node in version.graph.nodes.items()
        if name != _START and any(_available(version, trigger, values) for trigger in node.triggers)
    )


def _available(version: Version, trigger: str, values: dict[str, Any]) -> bool:
    if trigger not in values:
        return False
    specs: Any = version.graph.channels
    return bool(specs[trigger].from_checkpoint(values[trigger]).is_available())


def arrivals(version: Version, point: ResumePoint) -> dict[str, set[str]]:
    """The nodes that have arrived at joins, or wait for all others to end, by channel."""
    found = {}
    for name, found_channel in version.graph.channels.items():
        if not isinstance(found_channel, NamedBarrierValue | NamedBarrierValueAfterFinish):
            continue
        join: Any = found_channel
        seen = join.from_checkpoint(point.checkpoint["channel_values"].get(name, MISSING))
        if seen.seen and not seen.is_available():
            found[name] = set(seen.seen)
    return found


def renamed_now(name: str, step: int, history: RunHistory) -> str:
    """The name, since the run's last move, of a node that ran in `step`."""
    for until, names in history.renames:
        if step < until:
            name = names.get(name, name)
    return name


def scratch(history: RunHistory) -> RunHistory:
    """A copy of a history, for trying a move."""
    return replace(history, entered=dict(history.entered), renames=list(history.renames))
