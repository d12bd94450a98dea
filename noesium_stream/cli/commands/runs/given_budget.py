"""Budgets as people type them: `usd=0.5,tokens=10000`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
from pydantic import ValidationError

from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.budget import MOST_ACCOUNTS, Budget, checked_account

_KINDS: Final = {"usd": float, "tokens": int, "calls": int, "seconds": float}


class BudgetOption(click.ParamType[Budget]):
    """Click type of a budget; its value is a `Budget`."""

    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Budget:
        """See `click.ParamType.convert`."""
        if isinstance(value, Budget):
            return value
        limits: dict[str, Any] = {}
        for part in str(value).split(","):
            kind, _, amount = part.strip().partition("=")
            if kind not in _KINDS or kind in limits:
                self.fail(f"{part.strip()[:80]!r} is no limit; say it as usd=0.5,calls=20.", param, ctx)
            try:
                limits[kind] = _KINDS[kind](amount[:40].replace("_", "x"))
            except ValueError:
                self.fail(f"{kind}={amount[:40]!r} is no number.", param, ctx)
        try:
            return Budget(**limits)
        except ValidationError as error:
            first = error.errors()[0]
            self.fail(f"{first['loc'][0]}: {first['msg']}", param, ctx)


def with_accounts(budget: Budget | None, accounts: Sequence[str]) -> Budget | None:
    """The budget of a run that these accounts pay; None: nothing limits it.

    Raises:
        ConfigError: one is no name of an account, or there are too many.
    """
    if not accounts:
        return budget
    if len(accounts) > MOST_ACCOUNTS:
        raise ConfigError(
            f"{len(accounts)} accounts are more than the {MOST_ACCOUNTS} that may pay for a run."
        )
    said = {} if budget is None else budget.model_dump()
    return Budget(**{**said, "accounts": tuple(checked_account(one) for one in accounts)})
