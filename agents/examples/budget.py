"""A handler: tells once when a team has spent more than its budget. It has no graph and no runs.

    noesium worker agents.examples.budget

A program says what is spent, `await client.publish(Spent(cents=700), key="kitchen")`, and
`noesium tail --type budget.` prints what comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from noesium_stream import BaseHandler, BaseProjection, DomainEvent, EventEnvelope

BUDGET_CENTS = 1_000


class Spent(DomainEvent, event_type="spending.spent"):
    """A team has spent something; the team is the event's key."""

    cents: int


class Exceeded(DomainEvent, event_type="budget.exceeded"):
    """A team has spent more than its budget, with the event that this was made from."""

    team: str
    cents: int


class Total(BaseProjection[int]):
    """What each team has spent."""

    name = "total"
    topics = ("events.spending",)
    events = (Spent,)
    event_types = ("spending.spent",)

    def key(self, event: EventEnvelope) -> str | None:
        """The team."""
        return event.partition_key

    def initial_state(self) -> int:
        """Nothing."""
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        """Add what was spent."""
        cents: int = event.payload["cents"]
        return state + cents


class Budget(BaseHandler):
    """Compares what was spent before an event with what it is after it."""

    agent_type = "budget"
    state = Total
    events = (Exceeded,)

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        """Tell that the event has exceeded the budget, if it has."""
        after = state + event.payload["cents"]
        if state <= BUDGET_CENTS < after:
            yield Exceeded(team=event.partition_key or "", cents=after)


AGENT = Budget
