"""What the records of an exported run say: who asked, who approved, what was done, how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.rules.agent_calls import ANSWERS, CALLS, COMMANDS, input_of
from noesium_stream.event.rules.labels import label_of
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.trust.speaking import decider_of

ASKED: Final = frozenset(
    {"approval.answered", "run.signalled", "run.cancel.requested", "effect.resolved", "effect.reported"}
)
"""Types of events that only senders make: in a journal they are copies."""

_SHOWN: Final = 200


def is_asked(event: EventEnvelope, run_id: str) -> bool:
    """Whether only a sender makes such an event in the journal of this run.

    A request to cancel another run is what the run itself has sent to one that it has called.
    """
    return event.event_type in ASKED and event.payload.get("run_id", run_id) == run_id


@dataclass(frozen=True, slots=True)
class Said:
    """What somebody asked of the run.

    Attributes:
        what: `asked`, `approved`, `rejected`, `signalled`, `cancelled` or `decided`.
        by: in whose name.
        key: id of the key that the sender signed with; None: only the agent says so.
        at_ms: when the log took it (milliseconds since the epoch).
        about: the input, the question, the name of the message or of the effect, in one line.
    """

    what: str
    by: str
    key: str | None
    at_ms: int
    about: str = ""


@dataclass(slots=True)
class Done:
    """An effect, or a call of another agent.

    Attributes:
        name: its name, or the capability's.
        kind: the effect's class, or `call`.
        outcome: `done`, `failed`, `unknown` or `under way`.
        at_ms: when the log took the outcome, or else the intent.
        detail: of a failure, in one line.
    """

    name: str
    kind: str
    outcome: str
    at_ms: int
    detail: str = ""


@dataclass(slots=True)
class Findings:
    """A fold over the records of a run, in order.

    Attributes:
        said: what was asked of it, in order.
        done: effects and calls by their ids, in the order of their intents.
        status: how it ended; None: it has not.
        ended_ms: when the log took its end.
        message: why it failed, or was refused.
        forked_from: the run whose history it shares.
    """

    said: list[Said] = field(default_factory=list)
    done: dict[str, Done] = field(default_factory=dict)
    status: str | None = None
    ended_ms: int | None = None
    message: str = ""
    forked_from: str | None = None
    _questions: dict[str, str] = field(default_factory=dict)

    def take(self, event: EventEnvelope, at_ms: int, *, received: bool, key: str | None) -> None:
        """Add a record whose payload is valid by its schema; `key` signed the sender's record."""
        kind, payload = event.event_type, event.payload
        if received:
            self._received(event, Said(_verb(event), decider_of(event), key, at_ms))
        elif kind in ENDINGS:
            self.status, self.ended_ms = ENDINGS[kind], at_ms
            self.message = _line(payload.get("message"))
        elif kind == "run.started":
            self.forked_from = (payload.get("forked_from") or {}).get("run_id")
        elif kind == "approval.requested":
            self._questions[payload["approval_id"]] = _line(payload["question"])
        elif kind == "effect.requested":
            self._begins(payload["effect_id"], payload["name"], payload["effect_class"], at_ms)
        elif kind in CALLS:
            call_id = (payload.get("reply_to") or {}).get("call_id") or event.event_id
            self._begins(call_id, payload["capability_id"], "call", at_ms)
        elif kind in _OUTCOMES:
            self._ends(payload["effect_id"], _OUTCOMES[kind], payload, at_ms)

    def _received(self, event: EventEnvelope, said: Said) -> None:
        kind, payload = event.event_type, event.payload
        about = ""
        if kind in COMMANDS:
            about = label_of(input_of(payload))
        elif kind == "approval.answered":
            about = self._questions.get(payload["approval_id"], "")
        elif kind == "run.signalled":
            about = payload["name"]
        elif kind == "effect.resolved":
            found = self.done.get(payload["effect_id"])
            about = f"{found.name if found else payload['effect_id']}: {payload['decision']}"
            outcome = {"result": "done", "fail": "failed"}.get(payload["decision"], "under way")
            self._ends(payload["effect_id"], outcome, payload, said.at_ms)
        elif kind in ANSWERS:
            self._ends(payload["call_id"], "failed" if payload.get("error") else "done", payload, said.at_ms)
            return
        elif kind == "effect.reported":
            return  # the owner writes the outcome from it
        self.said.append(Said(said.what, said.by, said.key, said.at_ms, _line(about)))

    def _begins(self, key: str, name: str, kind: str, at_ms: int) -> None:
        self.done[key] = Done(_line(name), _line(kind), "under way", at_ms)

    def _ends(self, key: str, outcome: str, payload: Mapping[str, Any], at_ms: int) -> None:
        found = self.done.get(key)
        if found is not None:
            found.outcome, found.at_ms = outcome, at_ms
            found.detail = _line(payload.get("message") or payload.get("error") or payload.get("reason"))


_OUTCOMES: Final = {
    "effect.completed": "done",
    "effect.failed": "failed",
    "effect.outcome.unknown": "unknown",
}

_VERBS: Final = {
    "run.signalled": "signalled",
    "run.cancel.requested": "cancelled",
    "effect.resolved": "decided",
    **dict.fromkeys(COMMANDS, "asked"),
}


def _verb(event: EventEnvelope) -> str:
    if event.event_type == "approval.answered":
        return "approved" if event.payload["approved"] else "rejected"
    return _VERBS.get(event.event_type, "")


def _line(value: Any) -> str:
    if value is None:
        return ""
    return " ".join((value if isinstance(value, str) else short(value)).split())[:_SHOWN]
