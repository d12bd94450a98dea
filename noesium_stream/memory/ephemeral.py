"""`EphemeralMemory`: the working memory of a run, gone at its end (RFC-0004 §5.1, RFC-1001 §9.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from noesium_stream.event.payload.value import to_json
from noesium_stream.event.standard import MemoryDeleted, MemoryWritten
from noesium_stream.kernel.run_history import superstep
from noesium_stream.kernel.step.position import Place, this_step
from noesium_stream.memory.writing import checked_key

RUN: Final = "run:"
_WRITTEN: Final = "memory.written"


class EphemeralMemory:
    """Values by key for the nodes of one run; every method has to be called in a node.

    It is derived from the run's own events: a node reads what the supersteps before its own have set, and
    what it has set itself. So it is the same after a crash and in a replay, and nodes that run at the same
    time do not see each other. No other run can read it, and no store keeps it.
    """

    def get(self, key: str) -> Any | None:
        """The value of a key; None: there is none.

        Raises:
            KernelError: called outside a node; so do all methods.
        """
        return _notes(this_step()).get(key)

    def has(self, key: str) -> bool:
        """Whether there is such a key; its value may be None."""
        return key in _notes(this_step())

    def set(self, key: str, value: Any) -> None:
        """Set a value, from the step's commit on.

        Raises:
            AgentMemoryError: the key is empty or too long.
            StateError: the value has no JSON form.
        """
        place = this_step()
        place.check_open()
        kept = to_json(value, f"memory {key[:60]!r}")
        scope = RUN + place.run_id
        event = MemoryWritten(key=checked_key(key), value=kept, value_type=type(value).__name__, scope=scope)
        place.emitted.append(event)

    def delete(self, key: str) -> None:
        """Remove a key; harmless if there is none."""
        place = this_step()
        if key in _notes(place):
            place.emitted.append(MemoryDeleted(key=key, scope=RUN + place.run_id))

    def clear(self) -> None:
        """Remove all keys."""
        for key in self.keys():
            self.delete(key)

    def keys(self) -> list[str]:
        """The keys, in the order in which they were set first."""
        return list(_notes(this_step()))


def _notes(place: Place) -> dict[str, Any]:
    notes = dict(place.history.notes)  # those of earlier segments
    scope = RUN + place.run_id
    for event_type, payload in _events(place):
        if payload.get("scope") != scope:
            continue
        if event_type == _WRITTEN:
            notes[payload["key"]] = payload.get("value")
        else:
            notes.pop(payload.get("key", ""), None)
    return notes


def _events(place: Place) -> Iterator[tuple[str, dict[str, Any]]]:
    """The run's memory events that the step can have seen, in an order that does not depend on timing."""
    history, now = place.history, superstep(place.key)
    entered = {event.event_id: superstep(key) for key, event in history.entered.items()}
    before = [
        (entered[event.causation_id], *_within(event.idempotency_key or ""), event)
        for event in history.remembered
        if event.causation_id in entered and entered[event.causation_id] < now
    ]
    for *_, event in sorted(before, key=lambda one: one[:3]):
        yield event.event_type, event.payload
    for emitted in place.emitted:
        if emitted.event_type().startswith("memory."):
            yield emitted.event_type(), emitted.payload()


def _within(event_key: str) -> tuple[str, int]:
    """The task and the number within it, from `Place.event_key`."""
    task, _, number = event_key.rpartition("/")
    return task, int(number) if number.isdigit() else 0
