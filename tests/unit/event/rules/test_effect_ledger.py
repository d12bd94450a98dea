"""What a run's log says of its effects: which decisions count, come too late, or are none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from noesium_stream.event.rules.effect_ledger import EFFECT_HANDLERS, EffectLedger, refusal, undecided

EFFECT = {"effect_id": "e1"}


def ledger_of(*events: tuple[str, str, dict[str, Any]]) -> EffectLedger:
    """Fold `(event type, event id, payload beside the effect's id)`."""
    ledger = EffectLedger()
    for event_type, event_id, payload in events:
        event: Any = SimpleNamespace(event_type=event_type, event_id=event_id, payload={**EFFECT, **payload})
        EFFECT_HANDLERS[event_type](ledger, event, event.payload)
    return ledger


REQUESTED = ("effect.requested", "intent", {"name": "pay"})
UNKNOWN = ("effect.outcome.unknown", "unknown", {})
REPORTED = ("effect.reported", "report", {"intent_id": "intent"})
COMPLETED = ("effect.completed", "completed", {})
DECISION = {**EFFECT, "decision": "result", "outcome_id": "unknown"}


def test_a_decision_about_an_unknown_outcome_counts() -> None:
    assert refusal(ledger_of(REQUESTED, UNKNOWN), DECISION) is None


def test_a_decision_that_what_the_call_said_has_overtaken_is_late_and_no_mistake() -> None:
    for known in ([REPORTED], [REPORTED, COMPLETED], [COMPLETED]):
        ledger = ledger_of(REQUESTED, UNKNOWN, *known)
        refused = refusal(ledger, DECISION)
        assert refused is not None, known
        assert refused.late, known
    assert not list(undecided(ledger))


def test_a_decision_about_an_outcome_that_never_waited_for_one_is_a_mistake() -> None:
    ledger = ledger_of(REQUESTED, COMPLETED)
    for outcome_id in ("completed", None, "another"):
        refused = refusal(ledger, {**DECISION, "outcome_id": outcome_id})
        assert refused is not None
        assert not refused.late
