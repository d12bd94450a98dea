"""Bugs like those of `planted`, in the budgets of users and tenants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from noesium_stream.agent.accounts.ledger import Account
from noesium_stream.event.rules import budget
from noesium_stream.event.rules.budget import Spending
from noesium_stream.llm import call
from tests.sim.budgets import budget_stage
from tests.sim.planted import planted

_planted: Callable[..., Any] = partial(planted, make_stage=budget_stage)


@_planted("overspent")
def grant_to_each_as_if_it_were_alone(patch: pytest.MonkeyPatch) -> None:
    """What other runs hold is not looked at."""
    patch.setattr(Account, "held", lambda self, kind: 0)


@_planted("overspent")
def look_at_what_is_settled_alone(patch: pytest.MonkeyPatch) -> None:
    """Calls that are under way do not count against the run's slices."""
    patch.setattr(Spending, "used_of_accounts", lambda self, kind: 0 if kind == "calls" else self.own[kind])


@_planted("ledger", "overspent", first=25)
def make_a_call_again_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """What a call took that a crash has cut off is forgotten when it is made again."""
    patch.setitem(budget._HANDLERS, "model.repeated", lambda state, payload: None)  # type: ignore[index]


@_planted("ledger")
def give_back_what_a_refused_repetition_had(patch: pytest.MonkeyPatch) -> None:
    """A call that had begun, and that there is no room for any more, is taken for one that cost nothing."""
    true_charge = call._may_have_charged
    patch.setattr(call, "_may_have_charged", lambda name: name != "BudgetExceededError" and true_charge(name))
