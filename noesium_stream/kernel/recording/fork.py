"""Runs that branch off others and share their history.

A fork's journal begins with its own `run.started`, which names the parent and the superstep. The shared
history stays in the parent's journal and is read from there: the deltas of the steps up to the fork. The
executor walks over them as over its own and continues from there. Nothing else is shared: the parent undoes
its own effects, and questions and messages to the parent belong to its own steps. The labels of the shared
data are in the fork's command, so that they are a fold over the fork's own journal.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from noesium_stream.errors import CheckpointError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.provenance import Provenance
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.kernel.run_history import RunHistory, StepKey, superstep, undo_id
from noesium_stream.kernel.segment_state import MOVES

_OVERWRITE: Final = "__overwrite__"
_COMMAND: Final = "__command__"
_SHARED: Final = frozenset(
    {"kernel.node.completed", "kernel.node.failed", "kernel.checkpoint.created", *MOVES}
)


def last_step(run: RecordedRun) -> int:
    """The last superstep whose steps are all completed; 0 if there is none."""
    completed = {0}
    for event in (*run.shared, *(item.event for item in run.events)):
        if event.event_type == "kernel.node.completed" and undo_id(_key(event)) is None:
            completed.add(superstep(_key(event)))
    begun = min((superstep(key) for key in _open_steps(run)), default=max(completed) + 1)
    return max(step for step in completed if step < begun)


def shared_history(
    parent: RecordedRun, step: int, values: Mapping[str, Any], reduced: tuple[str, ...] = ()
) -> tuple[EventEnvelope, ...]:
    """The history that a fork of `parent` after superstep `step` shares, with some `values` replaced.

    Values at step 0 belong to the initial state and are not part of it.

    Raises:
        CheckpointError: the parent has not completed that superstep.
    """
    last = last_step(parent)
    if not 0 <= step <= last:
        raise CheckpointError(
            f"run {parent.run_id} has no completed step {step}.", hint=f"It has the steps 0 to {last}."
        )
    events = [
        event for event in (*parent.shared, *(item.event for item in parent.events)) if _is_until(event, step)
    ]
    if step == 0 or not values:
        return tuple(events)
    return _with_values(events, step, values, reduced)


def signals_taken(parent: RecordedRun, step: int) -> dict[str, int]:
    """How many signals the parent's steps until superstep `step` have taken, by name."""
    found = dict((parent.started.payload.get("forked_from") or {}).get("taken") or {})
    for event in shared_history(parent, step, {}):
        for name, taken in (event.payload.get("taken") or {}).items():
            found[name] = max(found.get(name, 0), taken)
    return dict(sorted(found.items()))


def provenance_at(parent: RecordedRun, step: int) -> Provenance:
    """Where the data of `parent` came from when superstep `step` was completed.

    What the parent recorded later does not count: it has the same result whenever the parent is read.
    """
    found, ended = Provenance(), 0
    for index, item in enumerate(parent.events):
        kind = item.event.event_type
        if kind == "run.started":
            ended = max(ended, index)
        elif kind == "kernel.node.completed" and _is_until(item.event, step):
            ended = index
    for item in parent.events[: ended + 1]:
        found.apply(item.event)
    return found


def check_questions(parent: RecordedRun, step: int) -> None:
    """Refuse a fork of `parent` after superstep `step` that would pass a question to certain people.

    What they have approved they have approved for the parent. A fork that begins before the question asks it
    again.

    Raises:
        CheckpointError: the question was asked in that superstep or before it.
    """
    entered = {
        item.event.event_id: superstep(_key(item.event))
        for item in parent.events
        if item.event.event_type == "kernel.node.entered" and undo_id(_key(item.event)) is None
    }
    for item in parent.events:
        asked = item.event.payload
        if item.event.event_type != "approval.requested" or not (
            asked.get("approvers") or asked.get("minimum")
        ):
            continue
        at = entered.get(item.event.causation_id or "")
        if at is not None and at <= step:
            raise CheckpointError(
                f"run {parent.run_id} has asked for approval in step {at} ({asked['node']}), which a fork "
                "does not inherit.",
                hint=f"Fork it at step {at - 1} or before: it asks again.",
            )


def inherit(history: RunHistory, shared: tuple[EventEnvelope, ...]) -> None:
    """Put the shared history at the beginning of a fork's; its own records stay the last ones."""
    records, last, checkpoint = history.records, history.last_event_id, history.last_checkpoint
    for event in shared:
        history.apply(event)
    history.records, history.last_event_id = records, last
    history.last_checkpoint = checkpoint or history.last_checkpoint


def initial_of(fork: dict[str, Any] | None, initial: Any) -> Any:
    """The initial state, with the values of a fork at its very beginning.

    Raises:
        CheckpointError: the state has no keys.
    """
    if not fork or fork["step"] or not fork.get("values"):
        return initial
    if not isinstance(initial, dict):
        raise CheckpointError("Values can be set only in a state that is made of keys.")
    return {**initial, **fork["values"]}


def _key(event: EventEnvelope) -> StepKey:
    return event.payload["step"], event.payload["task_path"]


def _is_until(event: EventEnvelope, step: int) -> bool:
    kind = event.event_type
    if kind not in _SHARED:
        return False
    if kind == "kernel.checkpoint.created":
        return int(event.payload["step"]) <= step
    if kind in MOVES:
        return int(event.payload["step"]) <= step + 1
    if undo_id(_key(event)) is not None:
        return False  # a compensation of the parent
    if kind == "kernel.node.failed" and event.payload.get("retry_in_ms") is not None:
        return False
    return superstep(_key(event)) <= step


def _open_steps(run: RecordedRun) -> set[StepKey]:
    """Steps that have begun and not ended."""
    found: set[StepKey] = set()
    for item in run.events:
        kind = item.event.event_type
        if kind.startswith("kernel.node.") and undo_id(_key(item.event)) is not None:
            continue
        if kind == "kernel.node.entered":
            found.add(_key(item.event))
        elif kind in MOVES:
            move = item.event.payload
            kept = {f"pull:{name}" for name in move["next"]}
            found = {key for key in found if key[0] != move["step"] or "|" in key[1] or key[1] in kept}
        elif kind == "kernel.node.completed" or (
            kind == "kernel.node.failed" and item.event.payload.get("retry_in_ms") is None
        ):
            found.discard(_key(item.event))
    return found


def _with_values(
    events: list[EventEnvelope], step: int, values: Mapping[str, Any], reduced: tuple[str, ...]
) -> tuple[EventEnvelope, ...]:
    """Write the values into the last delta of the superstep, and remove them from its other deltas.

    If the run was moved to another version after it, the state of the move gets them.
    """
    moves = [i for i, event in enumerate(events) if event.event_type in MOVES]
    if moves and events[moves[-1]].payload["step"] == step + 1:
        payload = events[moves[-1]].payload
        state = {**payload["state"], **values}
        events[moves[-1]] = events[moves[-1]].replace(payload={**payload, "state": state})
        return tuple(events)
    at = [
        index
        for index, event in enumerate(events)
        if event.event_type == "kernel.node.completed"
        and event.payload["step"] == step
        and "|" not in event.payload["task_path"]
    ]
    for index in at:
        payload = copy.deepcopy(events[index].payload)
        payload["delta"] = _without(payload.get("delta"), values)
        if index == at[-1]:
            written = {
                name: {_OVERWRITE: value} if name in reduced else value for name, value in values.items()
            }
            payload["delta"] = _with(payload["delta"], written)
        events[index] = events[index].replace(payload=payload)
    return tuple(events)


def _without(delta: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(delta, list):
        return [_without(item, names) for item in delta]
    if isinstance(delta, dict) and delta.keys() == {_COMMAND}:
        body = delta[_COMMAND]
        return {_COMMAND: {**body, "update": _without(body["update"], names)}}
    if isinstance(delta, dict):
        return {name: value for name, value in delta.items() if name not in names}
    return delta


def _with(delta: Any, written: dict[str, Any]) -> Any:
    if isinstance(delta, list):
        return [*delta, written]
    if isinstance(delta, dict) and delta.keys() == {_COMMAND}:
        body = delta[_COMMAND]
        return {_COMMAND: {**body, "update": _with(body["update"], written)}}
    return {**(delta or {}), **written}
