"""The parts of a recorded run: one recording for each version of its graph, and for each segment.

A part begins with its `run.migrated` or `run.segment.started` and has the steps from there on. Steps of that
superstep that had ended before the move are shared with it: the previous version made them. Steps that were
under way are repeated by the version that ended them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import GraphRef
from noesium_stream.kernel.recording.recorded_run import RecordedEvent, RecordedRun
from noesium_stream.kernel.recording.replay_index import ReplayIndex
from noesium_stream.kernel.run_history import StepKey, nested_in, superstep, undo_id
from noesium_stream.kernel.segment_state import MOVES

MOVED: Final = "run.migrated"


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a run that one version of the graph has made.

    Attributes:
        run: its recording; it is open if another part follows.
        ref: the version.
        move: the `run.migrated` or `run.segment.started` that it begins with; None for the first one.
        before: all earlier records.
        until: the first superstep of the part that follows; None for the last one.
    """

    run: RecordedRun
    ref: GraphRef
    move: EventEnvelope | None = None
    before: tuple[EventEnvelope, ...] = ()
    until: int | None = None


def parts(run: RecordedRun) -> list[Part]:
    """The parts of a run, in order; one part if it was never moved."""
    at = [index for index, item in enumerate(run.events) if item.event.event_type in MOVES]
    pinned = GraphRef.model_validate(run.started.payload["graph"])
    if not at:
        return [Part(run, pinned)]
    recording = ReplayIndex(run)
    ends = [*at, len(run.events)]
    first = replace(run, events=run.events[: ends[0]])
    found = [Part(first, pinned, until=_step(run, ends[0]))]
    for number, index in enumerate(at):
        end = ends[number + 1]
        move = run.events[index].event
        found.append(
            Part(
                _after(recording, index, end),
                graph_of(move),
                move,
                (*run.shared, *(item.event for item in run.events[:index])),
                _step(run, end) if end < len(run.events) else None,
            )
        )
    return found


def pinned_to(run: RecordedRun) -> GraphRef:
    """The version that a recorded run continues with."""
    moves = [item.event for item in run.events if item.event.event_type in MOVES]
    return graph_of(moves[-1]) if moves else GraphRef.model_validate(run.started.payload["graph"])


def graph_of(move: EventEnvelope) -> GraphRef:
    """The version that makes the part which this event begins."""
    payload = move.payload
    return GraphRef.model_validate(payload["to_graph"] if move.event_type == MOVED else payload["graph"])


def _step(run: RecordedRun, index: int) -> int:
    return int(run.events[index].event.payload["step"])


def _after(recording: ReplayIndex, index: int, end: int) -> RecordedRun:
    run = recording.run
    move = run.events[index].event.payload
    events, shared = [], []
    ended = {
        key
        for item in run.events[:index]
        if item.event.event_type == "kernel.node.completed"
        for key in [_key(item.event.payload)]
        if key[0] == move["step"] and nested_in(key) is None
    }
    for position, item in enumerate(run.events[:end]):
        event = item.event
        if event.event_type in MOVES:
            if position == index:
                events.append(item)
            continue
        home = _home(recording, event)
        if home is None:
            if event.event_type != "kernel.checkpoint.created" or event.payload["step"] >= move["step"]:
                events.append(item)
        elif _outermost(home) in ended:
            if event.event_type == "kernel.node.completed" and home in ended:
                shared.append(event)
        elif undo_id(home) is not None or (superstep(home) >= move["step"] and not _was_renamed(home, move)):
            events.append(item)
    return replace(run, events=tuple(events), shared=tuple(shared))


def _home(recording: ReplayIndex, event: EventEnvelope) -> StepKey | None:
    if event.event_type.startswith("kernel.node."):
        return _key(event.payload)
    return recording.home(event.event_id)


def _key(payload: Mapping[str, Any]) -> StepKey:
    return payload["step"], payload["task_path"]


def _outermost(key: StepKey) -> StepKey:
    """The step of the run's own graph that contains a step."""
    head, bar, _ = key[1].partition("|")
    if not bar:
        return key
    number, _, path = head.partition(":")
    return (int(number), path) if number.isdigit() else key


def _was_renamed(key: StepKey, move: Mapping[str, Any]) -> bool:
    """Whether a step had only been entered under a name that the new version does not run there."""
    outer = _outermost(key)
    return outer[0] == move["step"] and outer[1] not in {f"pull:{name}" for name in move["next"]}


def simulated(run: RecordedRun, moves: list[EventEnvelope]) -> RecordedRun:
    """The run with the journal that it would have after these moves."""
    return replace(run, events=(*run.events, *(RecordedEvent(move) for move in moves)))
