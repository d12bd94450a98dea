"""The treasurer: the agent that grants slices of budgets (`noesium worker agents.treasurer`).

Decision record: a budget that spans runs in several partitions needs one place that decides, or a lock. The
place is the partition of `events.budget` that has the account's key: its fenced owner folds what is granted
and settled, and answers in the commit in which it reads. A run asks for a slice, not for each call, so the
budget costs a wait of two commits per slice. Where no treasurer runs, a call that an account pays waits; it
never goes on without a slice.
"""

from __future__ import annotations

from collections.abc import Iterable

from noesium_stream.agent.accounts.ledger import Account, decide
from noesium_stream.agent.accounts.projection import Accounts
from noesium_stream.agent.handler import BaseHandler
from noesium_stream.agent.request import AgentRequest
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.slices import TREASURER


class Treasurer(BaseHandler):
    """Grants runs slices of the budgets of users and tenants, and never more than there is."""

    agent_type = TREASURER
    version = "1.0.0"
    state = Accounts

    def handle(self, event: EventEnvelope, state: Account) -> Iterable[AgentRequest]:
        """See `decide`."""
        return decide(state, event).made
