"""The accounts of a log as a projection: the treasurer's state, and what people are shown."""

from __future__ import annotations

from typing import Final

from noesium_stream.agent.accounts.ledger import INPUTS, NONE, Account, decide
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.base import BaseProjection

ACCOUNTS: Final = "events.budget"
"""The topic of accounts, without the namespace."""


class Accounts(BaseProjection[Account]):
    """Accounts by name."""

    name = "accounts"
    topics = (ACCOUNTS,)
    event_types = INPUTS

    def key(self, event: EventEnvelope) -> str | None:
        """The account; an event under another key is about none."""
        account = event.payload.get("account")
        return account if isinstance(account, str) and account == event.partition_key else None

    def initial_state(self) -> Account:
        """The state of an account of which nothing is known."""
        return NONE

    def apply(self, state: Account, event: EventEnvelope) -> Account:
        """See `decide`."""
        return decide(state, event).state
