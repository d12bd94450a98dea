"""Comparisons of a recorded step with its replay: each returns the difference with both sides, or None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.provenance import LABEL_SOURCE
from noesium_stream.kernel.recording.recorded_run import call_content, same
from noesium_stream.kernel.recording.replay_index import RecordedCall
from noesium_stream.kernel.verify.difference import (
    NOTHING,
    describe_call,
    first_difference,
    ordinal,
    shown,
    text,
)

_COMMAND = "__command__."


class Found(NamedTuple):
    """A phrase that describes a difference, and both sides."""

    what: str
    recorded: str
    now: str


def compare_delta(recorded: Any, now: Any) -> Found | None:
    """Compare the return values of a node."""
    found = first_difference(recorded, now)
    if found is None:
        return None
    path = found[0].removeprefix(_COMMAND)
    return Found(f"its delta differs at {path}" if path else "its delta differs", *map(shown, found[1:]))


def compare_checkpoint(recorded: dict[str, Any], now: dict[str, Any]) -> Found | None:
    """Compare the results of a superstep, as far as they are recorded."""
    gone = {"run_id", "checkpoint_id", "parent_id"}
    left = {name: value for name, value in recorded.items() if name not in gone}
    found = first_difference(left, {name: now.get(name) for name in left})
    if found is None:
        return None
    what = "the state after it differs" if "hash" in found[0] else f"its {found[0]} differ"
    return Found(what, *map(shown, found[1:]))


def compare_call(recorded: RecordedCall, now: dict[str, Any]) -> Found | None:
    """Compare two calls of the same content: effect class, compensation, approvers."""
    kind = recorded.event.event_type
    ours, theirs = call_content(kind, recorded.event.payload), call_content(kind, now)
    for name in sorted(ours.keys() | theirs.keys()):
        left, right = ours.get(name), theirs.get(name)
        if not same(left, right):
            what = f"the {ordinal(recorded.number)} call differs in its {name.replace('_', ' ')}"
            call = describe_call(kind, now)
            return Found(what, f"{call}, {text(left)}", f"{call}, {text(right)}")
    return None


def compare_order(recorded: RecordedCall, made: Sequence[tuple[int, str]]) -> Found | None:
    """Compare a call's place among earlier calls of the same task: within a task calls have an order."""
    before = next((call for index, call in made if index > recorded.index), None)
    if before is None:
        return None
    call = describe_call(recorded.event.event_type, recorded.event.payload)
    return Found(f"the {ordinal(recorded.number)} call differs", call, f"{before}, and this one after it")


def compare_events(recorded: Sequence[EventEnvelope], now: Sequence[DomainEvent]) -> Found | None:
    """Compare the events that a node emitted, in order.

    The labels among the sources of a memory are not the node's own: they follow from results that others have
    recorded, some of them while the node ran.
    """
    for index in range(max(len(recorded), len(now))):
        left = recorded[index] if index < len(recorded) else None
        right = now[index] if index < len(now) else None
        ours = NOTHING if left is None else text(f"{left.event_type} {shown(left.payload)}")
        theirs = NOTHING if right is None else text(f"{right.event_type()} {shown(right.payload())}")
        if left is None or right is None:
            what = "is not emitted any more" if right is None else "was not emitted"
            return Found(f"the {ordinal(index)} event {what}", ours, theirs)
        emitted = _emitted(left.event_type, left.payload), _emitted(right.event_type(), right.payload())
        if left.event_type != right.event_type() or not same(*emitted):
            return Found(f"the {ordinal(index)} event differs", ours, theirs)
    return None


def _emitted(event_type: str, payload: dict[str, Any]) -> dict[str, Any]:
    """What a node itself has put into an event."""
    if event_type != "memory.written":
        return payload
    sources = [one for one in payload.get("sources") or () if not one.startswith(LABEL_SOURCE)]
    return {**payload, "sources": sources}
