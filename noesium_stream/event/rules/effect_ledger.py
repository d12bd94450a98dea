"""State of a run's effects from its log, and validation of decisions about them.

The sender of a decision checks it before sending; the run's owner checks it on arrival. Both use this module,
so that neither agent code nor LangGraph is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from noesium_stream.event.envelope import EventEnvelope


@dataclass(slots=True)
class EffectLedger:
    """The effects of one run: a fold over its records, in order.

    Attributes:
        requested: the last intent, by effect id.
        outcomes: the last outcome, by effect id; missing while the effect is in progress.
        reported: the late outcome, by effect id, of a call whose process had given the run up.
        resolved: the decision, by the event id of the outcome that it decides.
        overtaken: event ids of outcomes that waited for a decision until the call's own outcome was reported.
        undoable: completed effects with a compensation, in the order of completion.
        compensation: the `run.compensation.started`; after it the run is ending.
    """

    requested: dict[str, EventEnvelope] = field(default_factory=dict)
    outcomes: dict[str, EventEnvelope] = field(default_factory=dict)
    reported: dict[str, EventEnvelope] = field(default_factory=dict)
    resolved: dict[str, EventEnvelope] = field(default_factory=dict)
    overtaken: set[str] = field(default_factory=set)
    undoable: list[EventEnvelope] = field(default_factory=list)
    compensation: EventEnvelope | None = None


class Refusal(NamedTuple):
    """The reason to refuse a decision; `late` if the outcome was already decided."""

    reason: str
    late: bool = False


def awaits_decision(outcome: EventEnvelope) -> bool:
    """Whether a recorded outcome of an effect needs a person's decision."""
    unknown: bool = outcome.event_type == "effect.outcome.unknown"
    return unknown or outcome.payload.get("awaits_decision", False) is True


def undecided(ledger: EffectLedger) -> Iterator[EventEnvelope]:
    """The outcomes of an open run that wait for a decision, in recorded order."""
    for outcome in ledger.outcomes.values():
        if awaits_decision(outcome) and outcome.event_id not in ledger.resolved:
            yield outcome


def refusal(ledger: EffectLedger, payload: dict[str, Any]) -> Refusal | None:
    """The reason to refuse an `effect.resolved` with this payload in an open run; None to accept."""
    effect_id, decision = payload["effect_id"], payload["decision"]
    requested = ledger.requested.get(effect_id)
    if requested is None:
        return Refusal(f"the run has no effect {effect_id}")
    outcome = ledger.outcomes.get(effect_id)
    answered = payload.get("outcome_id")
    earlier = ledger.resolved.get(answered or (outcome.event_id if outcome is not None else ""))
    if earlier is not None:
        by = earlier.payload["resolved_by"]
        return Refusal(f"{by} has decided that already: {earlier.payload['decision']}", late=True)
    name = requested.payload["name"]
    if answered in ledger.overtaken:
        return Refusal(f"what came of the effect {name} is known without a decision", late=True)
    unknown = outcome is None or outcome.event_type == "effect.outcome.unknown"
    if unknown and effect_id in ledger.reported:
        return Refusal(
            f"the outcome of the effect {name} is known: the call itself has reported it", late=True
        )
    if outcome is None:
        return Refusal(f"the effect {name} is under way")
    if not awaits_decision(outcome):
        known = "completed" if outcome.event_type == "effect.completed" else "failed"
        return Refusal(f"the outcome of the effect {name} is known: it has {known}")
    if answered is not None and answered != outcome.event_id:
        return Refusal(f"the effect {name} has no outcome {answered} that is not decided")
    if decision == "retry" and ledger.compensation is not None and not requested.payload.get("compensates"):
        return Refusal(f"the run is ending, and the effect {name} is not called again: say what became of it")
    return None


def takes_report(ledger: EffectLedger, payload: dict[str, Any]) -> bool:
    """Whether an `effect.reported` with this payload adds an unknown outcome.

    It must concern the last call, whose outcome is missing, or unknown and not decided.
    """
    effect_id = payload["effect_id"]
    requested, outcome = ledger.requested.get(effect_id), ledger.outcomes.get(effect_id)
    if requested is None or requested.event_id != payload["intent_id"] or effect_id in ledger.reported:
        return False
    if outcome is None:
        return True
    return outcome.event_type == "effect.outcome.unknown" and outcome.event_id not in ledger.resolved


def _requested(ledger: EffectLedger, event: EventEnvelope, payload: dict[str, Any]) -> None:
    # A second intent follows a decision to call again: drop the outcomes of the first call.
    ledger.requested[payload["effect_id"]] = event
    ledger.outcomes.pop(payload["effect_id"], None)
    ledger.reported.pop(payload["effect_id"], None)


def _outcome(ledger: EffectLedger, event: EventEnvelope, payload: dict[str, Any]) -> None:
    before = ledger.outcomes.get(payload["effect_id"])
    if before is not None and awaits_decision(before) and before.event_id not in ledger.resolved:
        ledger.overtaken.add(before.event_id)
    ledger.outcomes[payload["effect_id"]] = event
    if event.event_type == "effect.completed":
        _done(ledger, event, payload["effect_id"])


def _reported(ledger: EffectLedger, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if takes_report(ledger, payload):
        ledger.reported[payload["effect_id"]] = event


def _resolved(ledger: EffectLedger, event: EventEnvelope, payload: dict[str, Any]) -> None:
    outcome = ledger.outcomes.get(payload["effect_id"])
    if outcome is None or outcome.event_id in ledger.resolved:
        return
    ledger.resolved[outcome.event_id] = event
    if payload["decision"] == "result":
        _done(ledger, event, payload["effect_id"])


def _done(ledger: EffectLedger, event: EventEnvelope, effect_id: str) -> None:
    requested = ledger.requested.get(effect_id)
    if requested is not None and requested.payload.get("compensation") is not None:
        ledger.undoable.append(event)


def _compensation(ledger: EffectLedger, event: EventEnvelope, payload: dict[str, Any]) -> None:
    ledger.compensation = ledger.compensation or event


EFFECT_HANDLERS: dict[str, Callable[[EffectLedger, EventEnvelope, dict[str, Any]], None]] = {
    "effect.requested": _requested,
    "effect.completed": _outcome,
    "effect.failed": _outcome,
    "effect.outcome.unknown": _outcome,
    "effect.reported": _reported,
    "effect.resolved": _resolved,
    "run.compensation.started": _compensation,
}
"""Folds by event type; other types are ignored."""
