"""What a call of a tool or a model has beside its effect: events that tell of it, and a gate before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Literal, Protocol

from noesium_stream.clock import derived_id
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.tool_calls import TIMEOUT
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel.run_history import RunHistory

TIMED_OUT: Final = "ToolTimeoutError"
"""`error_type` of a call that exceeded its time limit."""


def approval_of(call_id: str) -> str:
    """The id of the question about the call of this id: its answer is for this call alone."""
    return derived_id(call_id, "approval")


def questions_of(history: RunHistory, base: str) -> Iterator[str]:
    """The ids of the questions that are recorded about the calls of one effect, in order."""
    for failures in count():
        call_id = derived_id(base, str(failures))
        if approval_of(call_id) in history.approvals:
            yield approval_of(call_id)
        elif call_id not in history.requested:
            return


class Telling(Protocol):
    """Events about one call, each a pure function of what happened.

    See `event/rules/tool_calls.py` and `event/rules/model_calls.py`.

    A call id is the id of an effect.
    """

    def invoked(self, call_id: str) -> DomainEvent:
        """The call is about to begin."""

    def denied(self, call_id: str, error: Exception) -> DomainEvent:
        """The call was refused."""

    def completed(self, call_id: str, result: Any, duration_ms: int) -> DomainEvent | None:
        """The call has a result: its own, or what a person has found out. None: it goes on elsewhere."""

    def failed(self, call_id: str, error_type: str, message: str, duration_ms: int) -> DomainEvent:
        """The call failed, or was given up."""

    def timed_out(self, call_id: str) -> DomainEvent:
        """The call exceeded its time limit."""

    def limit_error(self) -> Exception:
        """The error of a call that exceeded its time limit."""


class Gate(Protocol):
    """Decides whether a call may begin, and how many begin at the same time."""

    async def pass_by(self, call_id: str, *, begins: bool) -> Exception | None:
        """Let a call pass, or say why it is refused; may wait for a person.

        Called for each effect id in turn, on every execution, so that a question that was asked is asked
        again. `begins`: the call is made now, and was not made before, or is safe to repeat.
        """

    def turn(self) -> AbstractAsyncContextManager[None]:
        """The turn of the call, held from its intent to its outcome."""


class Ledger(Protocol):
    """What was told of calls."""

    def lacks(self, call_id: str, event_type: str) -> bool:
        """Whether an end of this type is missing for a call that was begun."""


class TellingSite(Protocol):
    """The step that makes a call."""

    history: RunHistory

    def stage(self, event: DomainEvent, cause: str | None = None, key: str | None = None) -> EventEnvelope:
        """Stage an event for the next commit."""


@dataclass(frozen=True, slots=True)
class Told:
    """The call of a tool or a model that an effect is.

    Its events are staged in the commits of the effect's own. If somebody else has recorded the outcome (a
    late report, a person), the end is told on the next execution.
    """

    site: TellingSite
    telling: Telling
    gate: Gate
    of: Literal["tool", "model"] = "tool"

    @property
    def _ledger(self) -> Ledger:
        """What was told of the run's calls of this kind."""
        return self.site.history.tools if self.of == "tool" else self.site.history.models

    async def passed(self, call_id: str, effect_class: SideEffectClass) -> Exception | None:
        """Why the gate refuses the call of this id; None: it may be made, or has its outcome already."""
        history = self.site.history
        repeatable = call_id not in history.requested or effect_class is not SideEffectClass.EXTERNAL
        return await self.gate.pass_by(call_id, begins=call_id not in history.outcomes and repeatable)

    def begun(self, call_id: str, refused: Exception | None) -> None:
        """Stage that the call begins, or that it is refused."""
        telling = self.telling
        told = telling.invoked(call_id) if refused is None else telling.denied(call_id, refused)
        self.site.stage(told, key=derived_id(call_id, told.event_type()))

    def outcome(self, call_id: str, outcome: EventEnvelope) -> None:
        """Stage the end of a call whose effect has completed or failed."""
        payload, telling = outcome.payload, self.telling
        if outcome.event_type == "effect.completed":
            result, duration_ms = payload.get("result"), payload["duration_ms"]
            self._stage(
                call_id, f"{self.of}.completed", lambda: telling.completed(call_id, result, duration_ms)
            )
        elif payload["error_type"] == TIMED_OUT:
            self.timed_out(call_id)
        else:
            said = payload["error_type"], payload["message"], payload["duration_ms"]
            self._stage(call_id, f"{self.of}.failed", lambda: telling.failed(call_id, *said))

    def decided(self, call_id: str, decision: dict[str, Any], from_person: Callable[[Any], Any]) -> None:
        """Stage the end of a call whose outcome a person has said; `from_person` as of the effect."""
        telling = self.telling
        if decision["decision"] == "result":
            result = from_person(decision.get("result"))
            self._stage(call_id, f"{self.of}.completed", lambda: telling.completed(call_id, result, 0))
        else:
            said = f"{decision['resolved_by']} decided that it has failed"
            self._stage(
                call_id, f"{self.of}.failed", lambda: telling.failed(call_id, "EffectFailedError", said, 0)
            )

    def timed_out(self, call_id: str) -> None:
        """Stage that the call exceeded its time limit."""
        self._stage(call_id, TIMEOUT, lambda: self.telling.timed_out(call_id))

    def _stage(self, call_id: str, event_type: str, make: Callable[[], DomainEvent | None]) -> None:
        if not self._ledger.lacks(call_id, event_type):
            return
        event = make()
        if event is not None:
            cause = self.site.history.requested[call_id].event_id
            self.site.stage(event, cause, derived_id(call_id, event_type))
