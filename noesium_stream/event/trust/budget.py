"""What an agent's runs may spend on models: as its class, a policy or a command says it.

What a run has spent of it is a fold over its history: `event/rules/budget.py`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope_fields import MAX_INT
from noesium_stream.event.standard.agent import Amounts

NANO: Final = 1_000_000_000
OnLimit = Literal["ask", "degrade", "end"]
"""What happens to a call for which there is no room: a person is asked for more, a cheaper model is taken
(see `ModelRouter`), or the call fails."""

MOST_ACCOUNTS: Final = 16
AccountName = Annotated[str, Field(pattern=r"^(user|tenant):[^\x00-\x1f]{1,200}$")]


class Budget(BaseModel):
    """What a run may spend on models, with the runs that it calls.

    Attributes:
        usd: dollars. A call whose price is not known has no room in it.
        tokens: tokens of prompts and answers.
        calls: calls of models.
        seconds: wall time since the run has started; a call that is under way then is not broken off.
        on_limit: what happens to a call for which there is no room.
        share: the part of what is left that a run gets which is called, 0 to 1.
        accounts: users and tenants that pay for each run beside, within budgets of their own: `user:ada`,
            `tenant:acme`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    usd: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] | None = None
    tokens: Annotated[int, Field(ge=0, le=MAX_INT)] | None = None
    calls: Annotated[int, Field(ge=0, le=MAX_INT)] | None = None
    seconds: Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)] | None = None
    on_limit: OnLimit = "end"
    share: Annotated[float, Field(gt=0, le=1)] = 0.25
    accounts: Annotated[tuple[AccountName, ...], Field(max_length=MOST_ACCOUNTS)] = ()

    @property
    def limits(self) -> Amounts:
        """The limits, as events have them."""
        return Amounts(
            nano_usd=None if self.usd is None else round(self.usd * NANO),
            tokens=self.tokens,
            calls=self.calls,
            wall_ms=None if self.seconds is None else round(self.seconds * 1000),
            accounts=list(self.accounts) or None,
        )


def checked_account(account: str) -> str:
    """Return the name of an account.

    Raises:
        ConfigError: it is none.
    """
    try:
        Budget(accounts=(account,))
    except ValidationError:
        raise ConfigError(
            f"{account!r:.120} names no account.", hint="Write user:NAME or tenant:NAME."
        ) from None
    return account


def least(first: Budget | None, second: Budget | None) -> Budget | None:
    """The budget that keeps both; what happens at the limit is what the first one says."""
    if first is None or second is None:
        return first or second
    limits = {
        name: min(found)
        for name in ("usd", "tokens", "calls", "seconds")
        if (found := [one for one in (getattr(first, name), getattr(second, name)) if one is not None])
    }
    accounts = tuple(dict.fromkeys((*first.accounts, *second.accounts)))[:MOST_ACCOUNTS]
    return Budget(**limits, on_limit=first.on_limit, share=min(first.share, second.share), accounts=accounts)
