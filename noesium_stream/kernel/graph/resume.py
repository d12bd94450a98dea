"""Resumption of a long run: LangGraph's checkpoint, folded from the deltas on the journal (RFC-0003 §10).

No checkpoint is stored: it is derived from the nodes' recorded results, so that history grows with the work
done. The fold stops before the last superstep whose tasks are all known, which is the one before the newest
on the log. LangGraph then walks over those two with recorded deltas and decides what comes next.

A run that was moved to its graph begins with the state in `run.migrated`, and is folded from there.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph._internal._fields import get_cached_annotated_keys, get_update_as_tuples
from langgraph._internal._typing import MISSING
from langgraph.channels.base import BaseChannel
from langgraph.channels.delta import DeltaChannel
from langgraph.channels.ephemeral_value import EphemeralValue
from langgraph.channels.last_value import LastValueAfterFinish
from langgraph.channels.named_barrier_value import NamedBarrierValue, NamedBarrierValueAfterFinish
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    copy_checkpoint,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.state import CompiledStateGraph

from noesium_stream.clock import to_datetime
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.kernel.run_history import RunHistory, nested_in
from noesium_stream.kernel.state.node_values import updates
from noesium_stream.kernel.state.typed_json import decode

Graph = CompiledStateGraph[Any, Any, Any, Any]
Channels = dict[str, BaseChannel[Any, Any, Any]]

_BRANCH: Final = "branch:to:"
_PULL: Final = "pull:"


class ResumePoint(NamedTuple):
    """The checkpoint before superstep `step`."""

    step: int
    checkpoint: Checkpoint


def resume_point(graph: Graph, history: RunHistory, initial_state: Any) -> ResumePoint | None:
    """The latest checkpoint that can be folded from the history; None: walk from the beginning.

    Graphs with deferred nodes, with a state that has no keys, or with LangGraph channels that this fold does
    not know are walked.
    """
    if not _foldable(graph):
        return None
    step = _last_known(graph, history)
    if step is None:
        return None
    channels = _channels_before(graph, history, initial_state, step)
    saved = {name: _saved(channel) for name, channel in channels.items()}
    values = {name: value for name, value in saved.items() if value is not MISSING}
    for event in history.steps[step]:
        values[_BRANCH + event.payload["node"]] = None
    return _point(step, values, history.steps[step][0])


def _saved(channel: BaseChannel[Any, Any, Any]) -> Any:
    """The value of a channel as its checkpoint has it; a `DeltaChannel` keeps it in snapshots alone."""
    if isinstance(channel, DeltaChannel) and channel.is_available():
        return _DeltaSnapshot(channel.get())
    return channel.checkpoint()


def migrated_point(graph: Graph, migrated: EventEnvelope) -> ResumePoint:
    """The checkpoint from which a run continues with `graph`, to which `run.migrated` has moved it.

    Raises:
        StateError: the state holds a value of a class that is not loaded here.
    """
    payload = migrated.payload
    return _point(payload["step"], _migrated_values(graph, payload), migrated)


def _migrated_values(graph: Graph, payload: dict[str, Any]) -> dict[str, Any]:
    channels = graph.channels
    values: dict[str, Any] = {name: decode(value) for name, value in payload["state"].items()}
    for name in payload.get("deferred") or ():
        values[_BRANCH + name] = (None, False)
    for name in payload["next"]:
        deferred = isinstance(channels.get(_BRANCH + name), LastValueAfterFinish)
        values[_BRANCH + name] = (None, True) if deferred else None
    for name, arrived in (payload.get("joins") or {}).items():
        deferred = isinstance(channels.get(name), NamedBarrierValueAfterFinish)
        values[name] = (set(arrived), False) if deferred else set(arrived)
    return values


def _point(step: int, values: dict[str, Any], event: EventEnvelope) -> ResumePoint:
    checkpoint = Checkpoint(
        v=4,
        id=f"{step:032x}",
        ts=to_datetime(event.timestamp_ms).isoformat(),
        channel_values=values,
        channel_versions=dict.fromkeys(values, 1),
        versions_seen={},
        updated_channels=None,
    )
    return ResumePoint(step, checkpoint)


def first_step(history: RunHistory) -> int:
    """The first superstep of the run's graph: 1, or the one at which the run was moved to it."""
    return history.migrated.payload["step"] if history.migrated is not None else 1


def _foldable(graph: Graph) -> bool:
    channels = graph.channels
    if "__root__" in channels or not isinstance(graph, CompiledStateGraph):
        return False
    special = (LastValueAfterFinish, NamedBarrierValueAfterFinish)
    return not any(isinstance(channel, special) for channel in channels.values())


def _last_known(graph: Graph, history: RunHistory) -> int | None:
    """The last superstep whose tasks are all known to be on the log, each of them started by an edge."""
    newest = max(history.steps, default=0)
    for step in range(newest - 1, first_step(history) - 1, -1):
        tasks = [key for key in history.entered if key[0] == step and nested_in(key) is None]
        if tasks and all(
            path.startswith(_PULL)
            and (step, path) in history.completed
            and _BRANCH + path.removeprefix(_PULL) in graph.channels
            for _, path in tasks
        ):
            return step
    return None


def _channels_before(graph: Graph, history: RunHistory, initial_state: Any, until: int) -> Channels:
    moved = history.migrated
    begun = {} if moved is None else _migrated_values(graph, moved.payload)
    channels: Channels = {
        name: channel.from_checkpoint(begun.get(name, MISSING))
        for name, channel in graph.channels.items()
        if isinstance(channel, BaseChannel) and not name.startswith(("__", _BRANCH))
    }
    joins = {name: channel for name, channel in channels.items() if isinstance(channel, NamedBarrierValue)}
    state = {name: channel for name, channel in channels.items() if name not in joins}
    if moved is None:
        given = graph.builder.schemas[graph.builder.input_schema]
        _write(state, [[(key, value) for key, value in _pairs(initial_state) if key in given]])
    for step in range(first_step(history), until):
        done = sorted(history.steps.get(step, ()), key=_task_order)
        names = [event.payload["node"] for event in done]
        for channel, join in joins.items():
            if any(channel in graph.nodes[node].triggers for node in names):
                join.consume()
            join.update([node for node in names if node in join.names])
        _write(state, [updates(event.payload["delta"]) for event in done])
    return channels


def _pairs(state: Any) -> list[tuple[str, Any]]:
    if isinstance(state, dict):
        return list(state.items())
    return get_update_as_tuples(state, get_cached_annotated_keys(type(state)))


def _write(state: Channels, tasks: list[list[tuple[str, Any]]]) -> None:
    """Apply one superstep's writes, grouped by channel as LangGraph does; some channels drop old values."""
    grouped: dict[str, list[Any]] = {}
    for pairs in tasks:
        for key, value in pairs:
            if key in state:
                grouped.setdefault(key, []).append(value)
    for key, channel in state.items():
        if key in grouped or isinstance(channel, EphemeralValue):
            channel.update(grouped.get(key, ()))


def _task_order(event: EventEnvelope) -> list[str]:
    """The sort key of a task: LangGraph applies a superstep's writes by task path, its numbers as numbers."""
    path: str = event.payload["task_path"]
    return [part.zfill(10) if part.isdigit() else part for part in path.split(":")]


class ResumeSaver(BaseCheckpointSaver[int]):
    """Provides one checkpoint and stores nothing: the journal has it all."""

    def __init__(self, point: ResumePoint | None) -> None:
        super().__init__()
        self._point = point

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint; subgraphs have none."""
        if config["configurable"].get("checkpoint_ns") or self._point is None:
            return None
        step, checkpoint = self._point
        found: RunnableConfig = {
            "configurable": {
                "thread_id": config["configurable"]["thread_id"],
                "checkpoint_ns": "",
                "checkpoint_id": checkpoint["id"],
            }
        }
        metadata = CheckpointMetadata(source="loop", step=step - 1, parents={})
        return CheckpointTuple(found, copy_checkpoint(checkpoint), metadata, None, [])

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: Any
    ) -> RunnableConfig:
        """Store nothing."""
        return config

    async def aput_writes(
        self, config: RunnableConfig, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        """Store nothing."""

    def get_next_version(self, current: int | None, channel: None) -> int:
        """The next version: plain numbers."""
        return (current or 0) + 1


class WalkSaver(ResumeSaver):
    """Stores the last checkpoint that the walk of a graph has reached."""

    def __init__(self, point: ResumePoint | None) -> None:
        super().__init__(point)
        self.reached = point

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: Any
    ) -> RunnableConfig:
        """Store it; ignores those of subgraphs."""
        if not config["configurable"].get("checkpoint_ns"):
            self.reached = ResumePoint(metadata["step"] + 1, copy_checkpoint(checkpoint))
        return config
