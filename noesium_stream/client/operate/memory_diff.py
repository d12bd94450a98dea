"""Compares what two runs have read from memory and written to it: a fork and its origin, for example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.kernel.recording.recorded_run import RecordedRun

NOTHING = "-"
"""In place of the values of a run that has not read or written a memory."""

_READS = "memory."
_OWN = ("run", "session")


class MemoryDifference(NamedTuple):
    """A memory that two runs have read, or written, differently.

    Attributes:
        kind: `saw` or `wrote`.
        scope: whose memory; `run` and `session` are each run's own.
        key: its key.
        left: the values, in the order of the run, each as often as it changed; None: nothing.
        right: the same of the other run.
    """

    kind: str
    scope: str
    key: str
    left: list[Any] | None
    right: list[Any] | None


def memory_diff(left: RecordedRun, right: RecordedRun) -> list[MemoryDifference]:
    """What two runs saw or wrote differently, by scope and key; ids and times do not count."""
    ours, theirs = _told(left), _told(right)
    return [
        MemoryDifference(*place, ours.get(place), theirs.get(place))
        for place in sorted(ours.keys() | theirs.keys())
        if ours.get(place) != theirs.get(place)
    ]


def _told(run: RecordedRun) -> dict[tuple[str, str, str], list[Any]]:
    """The values by kind, scope and key."""
    asked: dict[str, dict[str, Any]] = {}
    found: dict[tuple[str, str, str], list[Any]] = {}
    for event in (*run.shared, *(item.event for item in run.events)):
        for kind, scope, key, value in _of_event(event, asked):
            values = found.setdefault((kind, _scope(scope), key), [])
            if not values or values[-1] != value:
                values.append(value)
    return found


def _of_event(event: EventEnvelope, asked: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, str, Any]]:
    """What one event says that the run saw or wrote: kind, scope, key, value."""
    payload, kind = event.payload, event.event_type
    if kind in ("memory.written", "memory.deleted"):
        scope = payload.get("scope") or f"agent:{event.producer.agent_id}"
        yield "wrote", scope, payload["key"], payload.get("value")
    elif kind == "memory.retracted":
        yield "wrote", "", payload["source"], "restored" if payload.get("restored") else "retracted"
    elif kind == "effect.requested" and payload["name"].startswith(_READS):
        arguments = payload.get("arguments")
        given = arguments.get("kwargs", {}).get("asked") if isinstance(arguments, dict) else None
        asked[payload["effect_id"]] = given if isinstance(given, dict) else {}
    elif kind == "effect.completed" and payload["effect_id"] in asked:
        question, result = asked[payload["effect_id"]], payload.get("result")
        if result is None and isinstance(question.get("key"), str):
            yield "saw", str(question.get("scope", "")), question["key"], None
        for item in _items(result):
            yield "saw", str(item.get("scope", "")), item["key"], item.get("value")


def _items(result: Any) -> Iterator[dict[str, Any]]:
    """The items of memory in the result of a read, in order."""
    if isinstance(result, list):
        for one in result:
            yield from _items(one)
    elif isinstance(result, dict) and isinstance(result.get("key"), str) and "at_ms" in result:
        yield result


def _scope(scope: str) -> str:
    kind = scope.partition(":")[0]
    return kind if kind in _OWN else scope
