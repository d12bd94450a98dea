"""The budget of a run and of the runs below it: money, tokens, calls of models, wall time.

Who pays beside, a user or a tenant, has an account; what a run may spend of it is a slice that the account
has granted to this run alone: `slices.py`.

A call reserves what it may take in the commit of its intent, and settles it in the commit of its outcome. A
run that is called gets a share of what is left, reserved in the commit that calls it; the answer settles it
by what the called run has spent. So the history of each run alone says what it has left, whatever crashes
and however many calls are under way; what is not known counts as spent.

Money is in nano-dollars. A limit that is None limits nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import MAX_INT
from noesium_stream.event.rules.slices import COUNTED, Slices, Want
from noesium_stream.event.standard.agent import Amounts
from noesium_stream.event.standard.model import BudgetSettled
from noesium_stream.event.trust.budget import Budget

WORDS: Final[Mapping[str, str]] = {
    "nano_usd": "money",
    "tokens": "tokens",
    "calls": "calls of models",
    "wall_ms": "wall time",
}


@dataclass(slots=True)
class Spending:
    """What a run has spent, and what it has reserved: a fold over its records, in order.

    Attributes:
        given: the limits in `run.started`.
        added: what people have added.
        spent: what is settled, by kind.
        reserved: by call id, what calls of models have reserved.
        shares: by call id, what called runs have got.
        pending: by call id, calls that have passed their gate and are not on the log yet; not a part of the
            fold.
        unpriced: calls without a known price.
        own: of `spent`, what its own calls have taken, without those of runs that it has called.
        slices: what it has been granted of accounts.
    """

    given: Amounts | None = None
    added: dict[str, int] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    reserved: dict[str, Want] = field(default_factory=dict)
    shares: dict[str, Amounts] = field(default_factory=dict)
    pending: dict[str, Want] = field(default_factory=dict)
    unpriced: int = 0
    own: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    slices: Slices = field(default_factory=Slices)

    def apply(self, event: EventEnvelope) -> None:
        """Apply the next record; one of another type changes nothing."""
        handler = _HANDLERS.get(event.event_type)
        if handler is not None:
            handler(self, event.payload)
        self.slices.apply(event)

    def accounts(self, budget: Budget | None) -> tuple[str, ...]:
        """The users and tenants that pay, as the command and the agent's budget name them."""
        said = () if self.given is None else self.given.accounts or ()
        return tuple(dict.fromkeys((*said, *(() if budget is None else budget.accounts))))

    def used_of_accounts(self, kind: str) -> int:
        """What the run's own calls have spent or reserved: runs that it calls have slices of their own."""
        found = self.own[kind] + sum(getattr(one, kind) or 0 for one in self.pending.values())
        if kind != "calls":
            found += sum(getattr(one, kind) or 0 for one in self.reserved.values())
        return found

    def shortfall(self, account: str, want: Want) -> Amounts | None:
        """What the run's slices of an account lack for a call; None: it has room."""
        used = {kind: self.used_of_accounts(kind) for kind in COUNTED}
        return self.slices.shortfall(account, want, used, self.added)

    def settled(self) -> list[BudgetSettled]:
        """What the run has spent of each account that it has asked; once it calls nothing any more."""
        spent = Amounts(**{kind: min(self.used_of_accounts(kind), MAX_INT) for kind in COUNTED})
        run_id, asked = self.slices.run_id or "", self.slices.asked
        return [BudgetSettled(run_id=run_id, account=account, spent=spent) for account in sorted(asked)]

    def used(self, kind: str) -> int:
        """What is spent or reserved of `nano_usd`, `tokens` or `calls`."""
        # Calls count when they begin, so those that are under way are in `spent`.
        found = self.spent[kind] + sum(getattr(one, kind) or 0 for one in self.shares.values())
        found += sum(getattr(one, kind) or 0 for one in self.pending.values())
        if kind != "calls":
            found += sum(getattr(one, kind) or 0 for one in self.reserved.values())
        return found

    @property
    def total(self) -> Amounts:
        """All that is spent or reserved."""
        return Amounts(**{kind: min(self.used(kind), MAX_INT) for kind in COUNTED})

    def limit(self, kind: str, budget: Budget | None) -> int | None:
        """The limit that counts: the smallest of those that are given, and what people have added."""
        sources = (self.given, None if budget is None else budget.limits)
        found = [value for one in sources if one is not None and (value := getattr(one, kind)) is not None]
        return min(found) + self.added.get(kind, 0) if found else None

    def exceeded(self, want: Want, budget: Budget | None, age_ms: int) -> str | None:
        """The kind of which there is no room for a call; None: it has room.

        Args:
            want: what the call may take.
            budget: of the agent.
            age_ms: the run's wall time.
        """
        for kind in COUNTED:
            limit, wanted = self.limit(kind, budget), getattr(want, kind)
            if limit is not None and (wanted is None or self.used(kind) + wanted > limit):
                return kind
        wall_ms = self.limit("wall_ms", budget)
        return "wall_ms" if wall_ms is not None and age_ms >= wall_ms else None

    def share(self, budget: Budget | None, age_ms: int) -> Amounts | None:
        """What a run gets that is called now; None: nothing is limited."""
        part = Budget().share if budget is None else budget.share
        found: dict[str, int] = {}
        for kind in COUNTED:
            limit = self.limit(kind, budget)
            if limit is not None:
                found[kind] = int(max(0, limit - self.used(kind)) * part)
        wall_ms = self.limit("wall_ms", budget)
        if wall_ms is not None:
            found["wall_ms"] = max(0, wall_ms - age_ms)
        accounts = self.accounts(budget)
        if not found and not accounts:
            return None
        return Amounts(**found, accounts=list(accounts) or None)


def _started(state: Spending, payload: dict[str, Any]) -> None:
    state.slices.run_id = state.slices.run_id or payload.get("run_id")
    if state.given is None and payload.get("budget") is not None:
        state.given = Amounts.model_validate(payload["budget"])


def _take(state: Spending, tokens: int, nano_usd: int | None, calls: int = 0, *, own: bool = True) -> None:
    for kind, amount in (("tokens", tokens), ("nano_usd", nano_usd or 0), ("calls", calls)):
        for found in (state.spent, state.own) if own else (state.spent,):
            found[kind] = min(found[kind] + max(0, amount), MAX_INT)


def _want_in(payload: dict[str, Any]) -> Want:
    return Want(payload["reserved_tokens"], payload["reserved_nano_usd"])


def _invoked(state: Spending, payload: dict[str, Any]) -> None:
    call_id = payload["call_id"]
    state.pending.pop(call_id, None)
    if call_id in state.reserved:
        return
    state.reserved[call_id] = _want_in(payload)
    _take(state, 0, 0, 1)
    for kind, amount in (payload.get("added") or {}).items():
        state.added[kind] = min(state.added.get(kind, 0) + max(0, amount), MAX_INT)


def _repeated(state: Spending, payload: dict[str, Any]) -> None:
    """What became of the call before is not known."""
    call_id = payload["call_id"]
    state.pending.pop(call_id, None)
    lost = state.reserved.get(call_id)
    if lost is not None:
        _take(state, lost.tokens, lost.nano_usd, 1)
        state.reserved[call_id] = _want_in(payload)


def _completed(state: Spending, payload: dict[str, Any]) -> None:
    reserved = state.reserved.pop(payload["call_id"], None)
    if reserved is None:
        return
    cost, tokens = payload["cost_nano_usd"], payload["input_tokens"] + payload["output_tokens"]
    state.unpriced += cost is None and reserved.nano_usd is None
    _take(state, tokens, reserved.nano_usd if cost is None else cost)


def _failed(state: Spending, payload: dict[str, Any]) -> None:
    reserved = state.reserved.pop(payload["call_id"], None)
    if reserved is not None and payload["charged"]:
        _take(state, reserved.tokens, reserved.nano_usd)


def _called(state: Spending, payload: dict[str, Any]) -> None:
    if payload.get("budget") is not None:
        state.shares[payload["reply_to"]["call_id"]] = Amounts.model_validate(payload["budget"])


def _answered(state: Spending, payload: dict[str, Any]) -> None:
    share = state.shares.pop(payload.get("call_id") or "", None)
    if share is None:
        return
    said = payload.get("spent")
    taken = share if said is None else Amounts.model_validate(said)
    _take(state, taken.tokens or 0, taken.nano_usd, taken.calls or 0, own=False)


_HANDLERS: Final = {
    "run.started": _started,
    "model.invoked": _invoked,
    "model.repeated": _repeated,
    "model.completed": _completed,
    "model.failed": _failed,
    "capability.completed": _answered,
    "tool.invocation.completed": _answered,
    "task.completed": _answered,
}
"""Calls of other runs are applied by `call_of_run`: a journal also has the call that began its own run."""


def call_of_run(state: Spending, payload: dict[str, Any]) -> None:
    """Apply a call that the run itself has made."""
    _called(state, payload)
