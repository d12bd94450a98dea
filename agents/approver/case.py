"""A case: asks one person after the other about one question, until it is closed or its time is over.

Whom it asks when is an event of its journal, `approver.asked`: a handler of `agent.approver-case.journal`
sends the mail. The times are durable timers, so a case goes on in whatever process there is.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from noesium_stream import (
    ApprovalError,
    BaseGraphicAgent,
    Client,
    DomainEvent,
    RunEndedError,
    SideEffectClass,
    current_step,
    kernel_node,
)

CASE: Final = "approver-case"
APPROVER: Final = "approver"
"""The name in which questions are denied. A question that names who may answer has to name it as well."""


class ApproverAsked(DomainEvent, event_type="approver.asked"):
    """Somebody is to be told of a question; `number` counts how often he was, from 1 on."""

    run_id: str
    agent_type: str
    approval_id: str
    to: str
    number: int
    escalated: bool
    question: Any


class ApproverDecided(DomainEvent, event_type="approver.decided"):
    """Nobody has answered in time: the question was denied, or it was not possible, and why."""

    run_id: str
    approval_id: str
    denied: bool
    reason: str


class Case(TypedDict, total=False):
    """A question, whom to ask about it, and how often somebody was told."""

    run_id: str
    agent_type: str
    approval_id: str
    question: Any
    people: list[str]
    remind_s: float
    escalate_s: float
    default: str
    told: int
    outcome: str


class ApproverCase(BaseGraphicAgent):
    """Tells, waits, tells again, tells the next one, and denies at the end."""

    agent_type = CASE
    version = "1.0.0"
    events = (ApproverAsked, ApproverDecided)

    def get_state_class(self) -> type[Any]:
        """See `Case`."""
        return Case

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(Case)
        graph.add_node("look", self.look)
        graph.add_node("wait", self.wait)
        graph.add_node("decide", self.decide)
        graph.add_edge(START, "look")
        graph.add_edge("wait", "look")
        graph.add_edge("decide", END)
        return graph

    @kernel_node(deterministic=False, entropy_sources=["log"])
    async def look(self, state: Case) -> Command[Literal["wait", "decide"]]:
        """Tell whoever is to be told now; end if the question is closed."""
        step, told = current_step(), state.get("told", 0)
        is_open = await step.effect(
            "question.open",
            self.is_open,
            state["run_id"],
            state["approval_id"],
            effect_class=SideEffectClass.PURE,
        )
        if not is_open:
            return Command(update={"outcome": "closed"})
        person, number = divmod(told, times_for_each(state))
        if person >= len(state["people"]):
            if state["default"] == "deny":
                return Command(goto="decide")
            return Command(update={"outcome": "left open"})
        step.emit(
            ApproverAsked(
                run_id=state["run_id"],
                agent_type=state["agent_type"],
                approval_id=state["approval_id"],
                to=state["people"][person],
                number=number + 1,
                escalated=person > 0,
                question=state["question"],
            )
        )
        return Command(goto="wait", update={"told": told + 1})

    async def wait(self, state: Case) -> dict[str, Any]:
        """Wait until somebody is to be told again."""
        times = times_for_each(state)
        is_last = state["told"] % times == 0
        rest_s = state["escalate_s"] - (times - 1) * state["remind_s"]
        await current_step().sleep(timedelta(seconds=rest_s if is_last else state["remind_s"]))
        return {}

    @kernel_node(deterministic=False, entropy_sources=["log"])
    async def decide(self, state: Case) -> dict[str, Any]:
        """Deny, in the name of the approver."""
        step = current_step()
        why = await step.effect(
            "question.deny",
            self.deny,
            state["run_id"],
            state["approval_id"],
            effect_class=SideEffectClass.IDEMPOTENT,
        )
        reason = why or "nobody has answered in time"
        step.emit(
            ApproverDecided(
                run_id=state["run_id"], approval_id=state["approval_id"], denied=why is None, reason=reason
            )
        )
        return {"outcome": "denied" if why is None else why}

    async def is_open(self, run_id: str, approval_id: str) -> bool:
        """Whether a question still waits for an answer."""
        run = await self._client().get_run(run_id)
        return any(one.approval_id == approval_id and one.status == "open" for one in await run.approvals())

    async def deny(self, run_id: str, approval_id: str) -> str | None:
        """Answer a question with no; return why that was not possible, else None."""
        run = await self._client().get_run(run_id)
        try:
            await run.reject(approval_id, by=APPROVER, idempotency_key=approval_id)
        except (ApprovalError, RunEndedError) as error:
            mine = [one for one in await run.approvals() if one.approval_id == approval_id]
            return None if any(one.answered_by == APPROVER for one in mine) else error.message
        return None

    def _client(self) -> Client:
        return Client(self.context.log, agent_id=APPROVER, clock=self.context.clock)


def times_for_each(state: Case) -> int:
    """How often one person is told before the next one is."""
    return max(1, math.ceil(state["escalate_s"] / state["remind_s"]))


AGENT = ApproverCase
