"""Events that tell of a run's model calls beside the effects that make them.

The kernel writes them in the commits of the effect's own events, as with tools (`tool_calls.py`). They are
for readers and for budgets (`budget.py`): a second execution reads the effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.slices import OF_RUNS
from noesium_stream.event.standard import ModelFailed

INVOKED: Final = "model.invoked"
ENDS: Final = frozenset({"model.completed", "model.failed"})
TYPES: Final = frozenset({INVOKED, "model.repeated", "model.denied", "model.switched", *ENDS, *OF_RUNS})

RUN_ENDED: Final = "RunEnded"
"""`error_type` of a call that had not ended when its run did."""


_WITHIN: Final = "within"
_NAMES: Final = "model:"


def arguments_within(arguments: dict[str, Any], effect_id: str | None) -> dict[str, Any]:
    """The recorded arguments of a model call that the code of a tool makes.

    Args:
        arguments: as a step's own code makes it, with `args` and `kwargs`.
        effect_id: of the tool's call; None: it is the step's own.
    """
    if effect_id is None:
        return arguments
    return {**arguments, "kwargs": {**arguments["kwargs"], _WITHIN: effect_id}}


def made_within(requested: Mapping[str, Any]) -> str | None:
    """The effect id of the tool call whose code made a model call, by its `effect.requested`; None: none."""
    arguments = requested.get("arguments")
    if not str(requested.get("name")).startswith(_NAMES) or not isinstance(arguments, Mapping):
        return None
    given = arguments.get("kwargs")
    found = given.get(_WITHIN) if isinstance(given, Mapping) else None
    return found if isinstance(found, str) else None


@dataclass(slots=True)
class ModelCalls:
    """The model calls of one run: a fold over its records, in order.

    Attributes:
        invoked: `model.invoked` by call id.
        over: the end by call id.
        switched: call ids that `model.switched` names.
    """

    invoked: dict[str, EventEnvelope] = field(default_factory=dict)
    over: dict[str, EventEnvelope] = field(default_factory=dict)
    switched: set[str] = field(default_factory=set)

    def apply(self, event: EventEnvelope) -> None:
        """Apply the next record; one of another type changes nothing."""
        kind, call_id = event.event_type, event.payload.get("call_id", "")
        if kind == INVOKED:
            self.invoked.setdefault(call_id, event)
        elif kind in ENDS:
            self.over.setdefault(call_id, event)
        elif kind == "model.switched":
            self.switched.add(call_id)

    def lacks(self, call_id: str, _event_type: str) -> bool:
        """Whether a call that was begun has no end yet."""
        return call_id in self.invoked and call_id not in self.over

    def left_open(self, run_id: str) -> Iterator[tuple[ModelFailed, str]]:
        """The ends of calls that have none when their run ends, each with its cause."""
        for call_id, invoked in self.invoked.items():
            if call_id not in self.over:
                failed = ModelFailed(
                    call_id=call_id,
                    run_id=run_id,
                    model=invoked.payload["model"],
                    error_type=RUN_ENDED,
                    error="the run ended before the call had an outcome",
                    charged=True,
                    duration_ms=0,
                )
                yield failed, invoked.event_id
