"""Budgets of users and tenants from any program: set, list.

What is said of one is an event of the topic `events.budget`; a worker of the treasurer (`noesium worker
agents.treasurer`) grants runs slices of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noesium_stream.agent.accounts.ledger import Account
from noesium_stream.agent.accounts.projection import Accounts
from noesium_stream.client.client import Client
from noesium_stream.client.folded import folded_rows
from noesium_stream.errors import ConfigError
from noesium_stream.event.rules.slices import COUNTED
from noesium_stream.event.standard import BudgetSet
from noesium_stream.event.trust.budget import Budget, checked_account

SLICE_PERCENT: Final = 10


@dataclass(frozen=True, slots=True)
class AccountInfo:
    """A user's or a tenant's budget as the log has it now; money is in nano-dollars.

    Attributes:
        account: `user:NAME` or `tenant:NAME`.
        limits: by kind (`nano_usd`, `tokens`, `calls`); None: nobody has said any, so nothing is granted.
        spent: by kind, of runs that have ended.
        held: by kind, granted to runs that have not ended.
        runs: the number of those runs.
        refused: how often there was no room.
        slice_percent: of what is left, granted to a run at a time.
        set_by: the agent id of whoever has said the limits.
    """

    account: str
    limits: dict[str, int] | None
    spent: dict[str, int]
    held: dict[str, int]
    runs: int
    refused: int
    slice_percent: int
    set_by: str


class AccountClient:
    """The budgets of users and tenants on a log.

        await AccountClient(client).set("user:ada", Budget(usd=5))

    Args:
        client: an open client.
        folder: as for `ScheduleClient`.
    """

    def __init__(self, client: Client, *, folder: Path | None = None) -> None:
        self._client = client
        self._folder = folder

    async def set(self, account: str, budget: Budget, *, slice_percent: int = SLICE_PERCENT) -> None:
        """Say what an account may spend in all; what is spent already stays spent.

        Args:
            account: `user:NAME` or `tenant:NAME`.
            budget: its `usd`, `tokens` and `calls`; one that is None is not limited.
            slice_percent: how much of what is left a run is granted at a time, 0 to 100; more is fewer waits,
                and more that one run holds while others find no room. With 0 it is what the next call may
                take.

        Raises:
            ConfigError: the account is no name of one, or something of the budget has no effect here.
            LogUnavailableError
        """
        checked_account(account)
        if budget.seconds is not None or budget.accounts:
            raise ConfigError(
                f"The budget of {account} limits usd, tokens and calls.",
                hint="`seconds` is the wall time of one run, and `accounts` name who pays for one.",
            )
        if not 0 <= slice_percent <= 100:
            raise ConfigError(f"slice_percent={slice_percent!r} is not between 0 and 100.")
        said = BudgetSet(account=account, limits=budget.limits, slice_percent=slice_percent)
        await self._client.publish(said, key=account)

    async def list(self) -> list[AccountInfo]:
        """List all accounts, by name.

        Raises `LogUnavailableError`.
        """
        rows = await folded_rows(self._client.log, Accounts(), self._folder)
        return [_info(rows[name]) for name in sorted(rows)]


def _info(account: Account) -> AccountInfo:
    return AccountInfo(
        account=account.name,
        limits=None if account.limits is None else dict(account.limits),
        spent=dict(account.spent),
        held={kind: account.held(kind) for kind in COUNTED},
        runs=len(account.open),
        refused=account.refused,
        slice_percent=account.slice_percent,
        set_by=account.set_by,
    )
