"""Calls of language models, told beside the effects that make them, and who pays (RFC-0003 §7, RFC-1001 §5).

Money is in nano-dollars (10⁻⁹ USD), whole numbers: a token of most models costs less than a micro-dollar.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from noesium_stream.event.domain_event import Form
from noesium_stream.event.standard.agent import Account, Amounts
from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import AgentType, Identifier, Name, Text, Whole


class ModelInvoked(StandardEvent, event_type="model.invoked"):
    """A model is about to be called; in the commit of the call's intent, `effect.requested`.

    `call_id` is the effect's id. `operation` is `chat` or `embeddings`. The call may take `reserved_tokens`
    and `reserved_nano_usd` of its run's budget until it has ended; None: its price is not known.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("approval_id", "added")

    call_id: Identifier
    run_id: Identifier
    model: Name
    operation: Name = "chat"
    reserved_tokens: Whole = Field(default=0, ge=0)
    reserved_nano_usd: Whole | None = Field(default=None, ge=0)
    approval_id: Identifier | None = None
    added: dict[Name, Whole] | None = None


class ModelRepeated(StandardEvent, event_type="model.repeated"):
    """A call is made again under its id: its process had ended before the outcome was recorded.

    What the earlier call cost is not known; what was reserved for it counts as spent.
    """

    call_id: Identifier
    run_id: Identifier
    model: Name
    reserved_tokens: Whole = Field(default=0, ge=0)
    reserved_nano_usd: Whole | None = Field(default=None, ge=0)


class ModelCompleted(StandardEvent, event_type="model.completed"):
    """The model answered.

    `input_tokens` has the `cached_tokens` in it. `estimated`: the provider said no number of tokens, or none
    that can be true. `cost_nano_usd` is None if the price is not known. `answered_by` is the model and
    version that the provider reports, `finish` why the answer ends. `repeats` is an earlier call whose answer
    a cache gave again: no model was called, and nothing was charged.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("answered_by", "finish", "cached_tokens", "repeats")

    call_id: Identifier
    run_id: Identifier
    model: Name
    input_tokens: Whole = Field(ge=0)
    output_tokens: Whole = Field(ge=0)
    estimated: bool
    cost_nano_usd: Whole | None = Field(default=None, ge=0)
    duration_ms: Whole = Field(ge=0)
    cached_tokens: Whole | None = Field(default=None, ge=0)
    answered_by: Name | None = None
    finish: Name | None = None
    repeats: Identifier | None = None


class ModelFailed(StandardEvent, event_type="model.failed"):
    """The call failed. `charged`: the provider may have charged for it, so what was reserved counts."""

    call_id: Identifier
    run_id: Identifier
    model: Name
    error_type: Name
    error: Text
    charged: bool
    duration_ms: Whole = Field(ge=0)


class ModelDenied(StandardEvent, event_type="model.denied"):
    """A call was refused before it began, by the budget; nothing was called."""

    call_id: Identifier
    run_id: Identifier
    model: Name
    kind: Name
    reason: Text


class ModelSwitched(StandardEvent, event_type="model.switched"):
    """Another model is asked in place of one that failed, or that the budget no longer allows.

    `kind` is the class of the failure: `rate_limit`, `context`, `refusal`, `outage`, `timeout`, `answer` or
    `budget`. `call_id` is the call that failed.
    """

    call_id: Identifier
    run_id: Identifier
    from_model: Name
    to_model: Name
    kind: Name
    reason: Text


# -- budgets of users and tenants ---------------------------------------------------------------------
#
# All events about an account have it as their key in `events.budget`, so that one fold decides about it, and
# no run spends what another one has been granted (`agent/accounts`).


class BudgetSet(StandardEvent, event_type="budget.set"):
    """A person says what an account may spend in all; in the place of what was said before.

    `slice_percent` of what is left is granted to a run at a time, or what its next call may take, if that is
    more. What is spent already stays spent.
    """

    account: Account
    limits: Amounts
    slice_percent: Annotated[int, Form(minimum=0, maximum=100)] = 10


class BudgetRequested(StandardEvent, event_type="budget.requested"):
    """A run asks for a slice of an account's budget, and its call waits for the answer.

    `wanted` is what the run's next call may take beyond its slices so far; without `nano_usd` its price is
    not known. The answer goes to the inbox of `agent_type`, with this `request_id`.
    """

    run_id: Identifier
    agent_type: AgentType
    request_id: Identifier
    account: Account
    wanted: Amounts


class BudgetGranted(StandardEvent, event_type="budget.granted"):
    """A run may spend this much more of an account; what is left out is not limited."""

    run_id: Identifier
    request_id: Identifier
    account: Account
    granted: Amounts


class BudgetRefused(StandardEvent, event_type="budget.refused"):
    """An account has no room for what a run has asked for; `kind` is what it lacks, `reason` how much."""

    run_id: Identifier
    request_id: Identifier
    account: Account
    kind: Name
    reason: Text


class BudgetSettled(StandardEvent, event_type="budget.settled"):
    """A run has ended, and has spent this much of an account; the rest of its slices goes back.

    In the commit of the run's last event, so it comes once.
    """

    run_id: Identifier
    account: Account
    spent: Amounts
