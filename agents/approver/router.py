"""Routes each question to a run that asks people about it: a handler of the journals, exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, Field

from agents.approver.case import CASE
from agents.approver.rules import Rule, read_rules
from noesium_stream import AgentContext, AgentRequest, BaseHandler, BaseProjection, DomainEvent, EventEnvelope
from noesium_stream.clock import derived_id
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.standard import RunCancelRequested, RunRequested

_ROLE: Final = "role:"
_MOST_OPEN: Final = 1_000


class ApproverOptions(BaseModel):
    """What the approver can be told."""

    rules: Path = Field(default=Path("approver.toml"), description="File with the rules.")


class OpenQuestions(BaseProjection[dict[str, int]]):
    """The open questions of each run: how many approvals each still needs."""

    name = "approver"
    topics = ("agent.*.journal",)
    event_types = ("approval.requested", "approval.answered", "approval.expired", *ENDINGS)

    def key(self, event: EventEnvelope) -> str | None:
        """The run that asks."""
        return event.partition_key

    def initial_state(self) -> dict[str, int]:
        """No question."""
        return {}

    def apply(self, state: dict[str, int], event: EventEnvelope) -> dict[str, int] | None:
        """The open questions after an event; None: there is none any more."""
        after = {one: left for one, left in state.items() if one not in closed_by(state, event)}
        question = event.payload.get("approval_id", "")
        if event.event_type == "approval.requested" and len(after) < _MOST_OPEN:
            after[question] = event.payload.get("minimum") or 1
        elif event.event_type == "approval.answered" and question in after:
            after[question] -= 1
        return after or None


def closed_by(state: dict[str, int], event: EventEnvelope) -> list[str]:
    """The questions that an event closes."""
    if event.event_type in ENDINGS:
        return sorted(state)
    question = event.payload.get("approval_id", "")
    if question not in state or event.event_type == "approval.requested":
        return []
    still_open = event.event_type == "approval.answered" and event.payload["approved"] and state[question] > 1
    return [] if still_open else [question]


class Approver(BaseHandler):
    """Starts a run of `agents.approver.case` for each question for which there is a rule."""

    agent_type = "approver"
    version = "1.0.0"
    Options = ApproverOptions
    state = OpenQuestions

    def __init__(self, options: BaseModel, context: AgentContext) -> None:
        super().__init__(options, context)
        self._rules = read_rules(ApproverOptions.model_validate(options.model_dump()).rules)

    def handle(self, event: EventEnvelope, state: dict[str, int]) -> Iterable[DomainEvent | AgentRequest]:
        """A command that begins a case, or those that end the cases of questions that are closed."""
        run_id = event.partition_key or ""
        for question in closed_by(state, event):
            cancel = RunCancelRequested(run_id=case_id(run_id, question), reason="the question is closed")
            yield AgentRequest(cancel, CASE)
        if event.event_type != "approval.requested":
            return
        agent_type, payload = event.producer.agent_type, event.payload
        rule = next((one for one in self._rules if one.fits(agent_type, payload["question"])), None)
        if rule is not None:
            case = case_of(rule, agent_type, run_id, payload)
            run = case_id(run_id, payload["approval_id"])
            yield AgentRequest(RunRequested(run_id=run, agent_type=CASE, input=case), CASE)


def case_id(run_id: str, approval_id: str) -> str:
    """The run that asks people about a question."""
    return derived_id("approver", run_id, approval_id)


def case_of(rule: Rule, agent_type: str, run_id: str, payload: dict[str, Any]) -> dict[str, Any]:
    """The input of a case: what was asked, and the rule as it was then.

    Who may not answer is not asked. If nobody of the rule may, those whom the question names are asked.
    """
    named = [name for name in payload["approvers"] if not name.startswith(_ROLE)]
    by_role = len(named) < len(payload["approvers"])
    people = [name for name in rule.ask if name in named or by_role or not payload["approvers"]]
    return {
        "run_id": run_id,
        "agent_type": agent_type,
        "approval_id": payload["approval_id"],
        "question": payload["question"],
        "people": people or named[:20],
        "remind_s": rule.remind.total_seconds(),
        "escalate_s": rule.escalate_s,
        "default": rule.default,
    }
