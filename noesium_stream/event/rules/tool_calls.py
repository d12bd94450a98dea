"""Events that tell of a run's tool calls beside the effects that make them (RFC-2003 §7.2).

The kernel writes them in the commits of the effect's own events. They are for readers: a second execution
reads the effect, so a replay neither repeats nor compares them. A node may write `tool.*` events of its own,
about calls that the kernel does not make: these have no `run_id`, and are events like others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules import model_calls
from noesium_stream.event.standard import ToolFailed

INVOKED: Final = "tool.invoked"
TIMEOUT: Final = "tool.timeout"
_ENDS: Final = frozenset({"tool.completed", "tool.failed", TIMEOUT})
_TYPES: Final = frozenset({INVOKED, "tool.denied", *_ENDS})

RUN_ENDED: Final = "RunEnded"
"""`error_type` of a call that had not ended when its run did."""


def is_told(event_type: str, payload: Mapping[str, Any]) -> bool:
    """Whether the kernel wrote the event about a call of a tool or a model that it makes."""
    return (event_type in _TYPES or event_type in model_calls.TYPES) and payload.get("run_id") is not None


@dataclass(slots=True)
class ToolCalls:
    """The tool calls of one run: a fold over its records, in order.

    Attributes:
        invoked: `tool.invoked` by call id.
        over: the last end by call id; after `tool.timeout` of an external tool another one may follow.
        allowed: hashes of calls that a person has allowed for the rest of the run.
    """

    invoked: dict[str, EventEnvelope] = field(default_factory=dict)
    over: dict[str, EventEnvelope] = field(default_factory=dict)
    allowed: set[str] = field(default_factory=set)

    def apply(self, event: EventEnvelope) -> None:
        """Apply the next record."""
        payload = event.payload
        if not is_told(event.event_type, payload):
            return
        if event.event_type == INVOKED:
            self.invoked[payload["call_id"]] = event
            if payload.get("always") and payload.get("arguments_hash"):
                self.allowed.add(payload["arguments_hash"])
        elif event.event_type in _ENDS:
            self.over[payload["call_id"]] = event

    def lacks(self, call_id: str, event_type: str) -> bool:
        """Whether an end of this type is missing for a call that was begun."""
        last = self.over.get(call_id)
        if call_id not in self.invoked:
            return False
        return last is None or (last.event_type == TIMEOUT and event_type != TIMEOUT)

    def left_open(self, run_id: str) -> Iterator[tuple[ToolFailed, str]]:
        """The ends of calls that have none when their run ends, each with its cause."""
        for call_id, invoked in self.invoked.items():
            if call_id not in self.over:
                payload = invoked.payload
                failed = ToolFailed(
                    call_id=call_id,
                    tool_id=payload["tool_id"],
                    tool_name=payload["tool_name"],
                    error_type=RUN_ENDED,
                    error="the run ended before the call had an outcome",
                    duration_ms=0,
                    run_id=run_id,
                )
                yield failed, invoked.event_id
