"""The ledger of an account: what an event does to it, as a pure function.

An account's limit is kept by its slices: what is spent, and what is granted to runs that have not settled
yet, is never more than the limit. A run has its slices for itself and settles them once, with its last event;
what it has not used goes back. A run that waits for months holds its slices for as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from noesium_stream.agent.request import AgentRequest
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import MAX_INT
from noesium_stream.event.rules.slices import COUNTED, REQUESTED, SETTLED
from noesium_stream.event.standard import BudgetGranted, BudgetRefused, BudgetSet
from noesium_stream.event.standard.agent import Amounts

NANO: Final = 1_000_000_000
MOST_OPEN: Final = 10_000
"""Most runs that have slices of one account at the same time: the account is one row."""


@dataclass(frozen=True, slots=True)
class Account:
    """What is known of a user's or a tenant's budget.

    Attributes:
        name: `user:NAME` or `tenant:NAME`.
        limits: by kind (`nano_usd`, `tokens`, `calls`); None: nobody has said any.
        slice_percent: of what is left, granted at a time.
        spent: by kind, what runs have settled.
        open: by run id, what is granted and not settled, by kind.
        refused: requests that found no room.
        set_by: the agent id of whoever has said the limits.
    """

    name: str = ""
    limits: Mapping[str, int] | None = None
    slice_percent: int = 10
    spent: Mapping[str, int] = field(default_factory=dict)
    open: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    refused: int = 0
    set_by: str = ""

    def held(self, kind: str) -> int:
        """What is granted to runs that have not settled."""
        return sum(slices.get(kind, 0) for slices in self.open.values())

    def left(self, kind: str) -> int | None:
        """What may still be granted; None: this kind is not limited."""
        limit = (self.limits or {}).get(kind)
        return None if limit is None else max(0, limit - self.spent.get(kind, 0) - self.held(kind))


NONE: Final = Account()
"""The state of an account of which nothing is known."""


class Decision(NamedTuple):
    """The state after an event, and what is answered."""

    state: Account
    made: tuple[AgentRequest, ...] = ()


def decide(account: Account, event: EventEnvelope) -> Decision:
    """Say what an event does to the account that is its key; none that its schema allows is an error."""
    rule = _RULES.get(event.event_type)
    return Decision(account) if rule is None else rule(account, event, event.payload)


def _set(account: Account, event: EventEnvelope, payload: Mapping[str, Any]) -> Decision:
    try:
        said = BudgetSet.model_validate(payload)
    except ValidationError:
        return Decision(account)
    limits = {kind: value for kind in COUNTED if (value := getattr(said.limits, kind)) is not None}
    return Decision(
        replace(
            account,
            name=said.account,
            limits=limits,
            slice_percent=min(max(said.slice_percent, 0), 100),
            set_by=event.producer.agent_id,
        )
    )


def _requested(account: Account, event: EventEnvelope, payload: Mapping[str, Any]) -> Decision:
    account = replace(account, name=payload["account"])
    refused = _refusal(account, payload)
    if refused is not None:
        kind, reason = refused
        answer = BudgetRefused(
            run_id=payload["run_id"],
            request_id=payload["request_id"],
            account=account.name,
            kind=kind,
            reason=reason,
        )
        counted = replace(account, refused=account.refused + 1)
        return Decision(counted, (AgentRequest(answer, payload["agent_type"]),))
    granted = {}
    for kind in COUNTED:
        left = account.left(kind)
        if left is not None:
            granted[kind] = max(payload["wanted"].get(kind) or 0, left * account.slice_percent // 100)
    run_id, had = payload["run_id"], account.open.get(payload["run_id"], {})
    slices = {kind: had.get(kind, 0) + granted.get(kind, 0) for kind in COUNTED}
    grant = BudgetGranted(
        run_id=run_id,
        request_id=payload["request_id"],
        account=account.name,
        granted=Amounts(**granted),
    )
    held = replace(account, open={**account.open, run_id: slices})
    return Decision(held, (AgentRequest(grant, payload["agent_type"]),))


def _refusal(account: Account, payload: Mapping[str, Any]) -> tuple[str, str] | None:
    """What an account lacks for a request, and how much of it; None: nothing."""
    if account.limits is None:
        return "unknown", "nobody has said what it may spend (`noesium budget set`)."
    if payload["run_id"] not in account.open and len(account.open) >= MOST_OPEN:
        return "runs", f"{len(account.open):,} runs have slices of it."
    for kind in COUNTED:
        left, wanted = account.left(kind), payload["wanted"].get(kind)
        if left is None:
            continue
        if wanted is None:
            return kind, "its price is not known, and money is limited. Declare its `prices`."
        if wanted > left:
            spent, held = account.spent.get(kind, 0), account.held(kind)
            return kind, (
                f"{_amount(kind, wanted)} are wanted, and of {_amount(kind, account.limits[kind])} "
                f"{_amount(kind, spent)} are spent and {_amount(kind, held)} held by runs."
            )
    return None


def _settled(account: Account, event: EventEnvelope, payload: Mapping[str, Any]) -> Decision:
    if payload["run_id"] not in account.open:
        return Decision(account)  # it was refused, or has settled
    spent = {
        kind: min(account.spent.get(kind, 0) + max(0, payload["spent"].get(kind) or 0), MAX_INT)
        for kind in COUNTED
    }
    still = {run_id: slices for run_id, slices in account.open.items() if run_id != payload["run_id"]}
    return Decision(replace(account, spent=spent, open=still))


def _amount(kind: str, amount: int) -> str:
    if kind == "nano_usd":
        return f"${amount / NANO:.6f}"
    return f"{amount:,} {'tokens' if kind == 'tokens' else 'calls'}"


_RULES: Final[Mapping[str, Callable[[Account, EventEnvelope, Mapping[str, Any]], Decision]]] = {
    BudgetSet.TYPE: _set,
    REQUESTED: _requested,
    SETTLED: _settled,
}
INPUTS: Final = tuple(_RULES)
"""Types of the events that an account is folded from."""
