"""Budgets of users and tenants: who may spend what, over all runs and partitions (RFC-1001 §5)."""

from typing import TYPE_CHECKING

from noesium_stream.exports import exports

if TYPE_CHECKING:
    from noesium_stream.agent.accounts.ledger import Account, decide
    from noesium_stream.agent.accounts.projection import ACCOUNTS, Accounts
    from noesium_stream.agent.accounts.treasurer import Treasurer

__all__ = ["ACCOUNTS", "Account", "Accounts", "Treasurer", "decide"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "ACCOUNTS": "projection",
            "Account": "ledger",
            "Accounts": "projection",
            "Treasurer": "treasurer",
            "decide": "ledger",
        },
    )
