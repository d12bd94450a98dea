"""Budgets of users and tenants in a simulated world: `python -m tests.sim --budgets --seeds 200`.

Runs of `spender` call a model, one after the other or side by side, and accounts pay for them; `helper` does
the same where a spender asks for it. Workers are killed, stand still and lose the log meanwhile, as in every
play; treasurers run in them. Judged from the log and from what the model was really asked for, by the word
that a fault begins with:

- overspent: of no account the calls that reached the model, and what they took, are more than its limit. A
  crash may repeat a call; that counts twice on both sides. So the bound is even without the call in flight.
- ledger: an account has counted at least what was taken; with its slices it never held more than its limit;
  when all runs have ended it holds nothing; a run settles once.
- lost, failed: each run that was asked for has completed, unless its budget was refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from noesium_stream.agent import BaseAgent
from noesium_stream.agent.accounts import Accounts, Treasurer
from noesium_stream.agent.accounts.ledger import Account
from noesium_stream.client import Client, Run
from noesium_stream.errors import CommitUnknownError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.slices import COUNTED
from noesium_stream.event.standard import Amounts, BudgetSet, Capability
from noesium_stream.event.trust.budget import Budget
from noesium_stream.log.embedded.log import EmbeddedLog
from tests.sim.cast import Caller
from tests.sim.loop import SimLoop
from tests.sim.model_orders import usage_of
from tests.sim.people import PAUSE_S, People
from tests.sim.plan import Command, Plan, Words, plan_of
from tests.sim.play import Machine, Stage
from tests.support import invariants
from tests.support.invariants import Asked, Book, Call
from tests.support.watching import AWAY, patiently

SPENDER: Final = "spender"
HELPER: Final = "helper"
HELP: Final = "spend.help"
ACCOUNTS: Final = ("user:ada", "user:bob", "tenant:acme")
_ANYTHING: Final[dict[str, Any]] = {}


class Spender(Caller):
    agent_type = SPENDER


class Helper(Caller):
    agent_type = HELPER
    capabilities = (Capability(id=HELP, input_schema=_ANYTHING, output_schema=_ANYTHING),)


@dataclass(frozen=True, slots=True)
class BudgetPlan(Plan):
    """A plan whose runs spend.

    Attributes:
        limits: of each account.
        percent: of what is left, granted at a time.
    """

    limits: Mapping[str, Amounts] = field(default_factory=dict)
    percent: int = 10

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types of its agents with runs."""
        return (SPENDER, HELPER)


def budget_plan_of(seed: int) -> BudgetPlan:
    """The plan of a seed: its troubles are those of the same seed without budgets."""
    usual, chance = plan_of(seed), Random(f"{seed} budgets")
    words = Words(chance)
    commands = [_command(chance, words) for _ in range(chance.randrange(2, 6))]
    limits = {}
    for account in ACCOUNTS:
        kind = chance.choice(("calls", "tokens", "nano_usd"))
        limits[account] = Amounts(**{kind: chance.randrange(1, 12) * (1 if kind == "calls" else 60)})
    fields = {name: getattr(usual, name) for name in Plan.__dataclass_fields__}
    fields |= {"commands": sorted(commands, key=lambda one: one.at_s), "growths": [], "spoils": []}
    fields |= {"upgrades": False, "fetches": False, "tools": False, "refusals": {}}
    return BudgetPlan(**fields, limits=limits, percent=chance.choice((0, 0, 10, 50)))


def _command(chance: Random, words: Words) -> Command:
    orders: list[list[Any]] = []
    for _ in range(chance.choice((1, 2, 3))):
        order = ["model", words.new()]
        kind = chance.random()
        if kind < 0.35:
            order = ["fan", [["model", words.new()] for _ in range(chance.choice((2, 3, 5)))]]
        elif kind < 0.5:
            order = ["help", [["model", words.new()] for _ in range(chance.choice((1, 2)))]]
        elif kind < 0.6:
            order = ["nap", round(chance.random() * 8.0, 3)]
        orders.append(order)
    return Command(
        at_s=chance.choice((0.0, chance.uniform(0, 5), chance.uniform(0, 40))),
        agent_type=SPENDER,
        orders=orders,
        key=words.new(),
        copies=chance.choice((1, 1, 2)),
        cancel_after_s=chance.uniform(0.0, 20.0) if chance.random() < 0.15 else None,
        signals=[],
    )


def payers_of(command: Command) -> tuple[str, ...]:
    """The accounts that pay for the run of a command."""
    return tuple(sorted(Random(f"payers {command.key}").sample(ACCOUNTS, 2)))


class Payers(People):
    """They say what accounts may spend, and who pays."""

    _plan: BudgetPlan

    def begin(self) -> list[asyncio.Task[Any]]:
        return [self._at_work("payer", self._say(self._client("payer"))), *super().begin()]

    async def _say(self, client: Client) -> None:
        for account, limits in self._plan.limits.items():
            said = BudgetSet(account=account, limits=limits, slice_percent=self._plan.percent)
            await patiently(partial(client.publish, said, key=account), PAUSE_S)

    async def _start(self, client: Client, command: Command, due: datetime | None) -> Run | None:
        budget = Budget(accounts=payers_of(command))
        while True:
            try:
                run = await client.start(
                    SPENDER, {"orders": command.orders}, idempotency_key=command.key, budget=budget
                )
            except (*AWAY, CommitUnknownError):
                await asyncio.sleep(PAUSE_S)
                continue
            self.asked[run.id] = Asked(run.id, SPENDER, [])
            return run


class BudgetStage(Stage):
    """A world in which accounts pay."""

    plan: BudgetPlan

    def _people(self) -> People:
        return Payers(self)

    def _agents(self, machine: Machine) -> Sequence[type[BaseAgent]]:
        return (Spender, Helper, Treasurer)

    async def _broken_rules(self, log: EmbeddedLog, book: Book) -> list[str]:
        topic = f"{log.topology.namespace}.events.budget"
        until = await log.end(topic)
        told = [record.envelope async for record in log.read(topic, {}, until=until)]
        return [
            *invariants.torn_commits(book.all()),
            *(fault for records in book.journals.values() for fault in invariants.broken_runs(records)),
            *wrong_runs(book, self.people.asked),
            *wrong_spending(self.plan, told, book, self.world.calls),
        ]


def budget_stage(loop: SimLoop, seed: int, folder: Path) -> Stage:
    """The world of `budget_plan_of`."""
    return BudgetStage(loop, budget_plan_of(seed), folder)


def wrong_runs(book: Book, asked: Mapping[str, Asked]) -> Iterator[str]:
    """Runs without an outcome, or with one that nothing explains."""
    for run_id in asked:
        end = invariants.outcome_of(book, run_id)
        if end is None:
            yield f"lost: run {run_id} has no outcome"
        elif end.event_type == "run.failed":
            yield f"failed: run {run_id}: {end.payload['error_type']}: {end.payload.get('message', '')}"


def wrong_spending(
    plan: BudgetPlan, told: Sequence[EventEnvelope], book: Book, calls: Sequence[Call]
) -> Iterator[str]:
    """Accounts that paid more than their limits, or whose ledger is not what happened."""
    payers, taken = _payers(book), defaultdict[str, Counter[str]](Counter)
    for call in calls:
        run_id = _run_of(book, call.key)
        tokens = sum(usage_of(call.words))
        for account in payers.get(run_id, ()):
            taken[account].update({"calls": 1, "tokens": tokens, "nano_usd": tokens})
    fold, rows, settled = Accounts(), dict[str, Account](), Counter[tuple[str, str]]()
    for event in told:
        name = fold.key(event)
        if name is None:
            continue
        rows[name] = row = fold.apply(rows.get(name, fold.initial_state()), event)
        if event.event_type == "budget.settled":
            settled[name, event.payload["run_id"]] += 1
        for kind, limit in (row.limits or {}).items():
            if row.spent.get(kind, 0) + row.held(kind) > limit:
                yield f"ledger: {name} has spent and granted more than {limit} {kind}"
    for account, limits in plan.limits.items():
        row = rows.get(account, fold.initial_state())
        for kind in COUNTED:
            limit = getattr(limits, kind)
            if limit is not None and taken[account][kind] > limit:
                yield f"overspent: {account} took {taken[account][kind]} of {limit} {kind}"
            counted = row.spent.get(kind, 0)
            if counted < taken[account][kind]:
                yield f"ledger: {account} has counted {counted} of {taken[account][kind]} {kind}"
        if row.open:
            yield f"ledger: {account} still holds slices of {sorted(row.open)}"
    for (account, run_id), times in settled.items():
        if times > 1:
            yield f"ledger: run {run_id} has settled {times} times with {account}"


def _payers(book: Book) -> dict[str, tuple[str, ...]]:
    """By run, the accounts in its `run.started`."""
    found = {}
    for run_id, events in book.runs.items():
        for event in events:
            if event.event_type == "run.started":
                found[run_id] = tuple((event.payload.get("budget") or {}).get("accounts") or ())
    return found


def _run_of(book: Book, call_id: str) -> str:
    for run_id, events in book.runs.items():
        for event in events:
            if event.event_type == "effect.requested" and event.payload["idempotency_key"] == call_id:
                return run_id
    return ""
