"""Budgets of users and tenants: kept over runs on several partitions, whatever crashes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.agent.accounts import Accounts, Treasurer
from noesium_stream.agent.accounts.ledger import Account
from noesium_stream.client import Client
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.clock import SystemClock
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.rules.slices import Slices, Want
from noesium_stream.event.standard import Amounts, BudgetGranted, BudgetRequested, BudgetSet
from noesium_stream.event.trust.budget import Budget
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S
from tests.unit.llm.test_gate import Priced, agent_with, of_type

ADA = "user:ada"


def treasurer(rehearsal: Rehearsal, home: Path) -> Worker:
    return Worker(rehearsal.log, [Treasurer], home=home, clock=rehearsal.clock)


async def account_of(log: EventLog, name: str) -> Account:
    topic, fold, state = f"{log.topology.namespace}.events.budget", Accounts(), Accounts().initial_state()
    async for record in log.read(topic, {}, until=await log.end(topic)):
        if fold.key(record.envelope) == name:
            state = fold.apply(state, record.envelope)
    return state


async def spend(
    kind: Any,
    tmp_path: Path,
    runs: list[int],
    *,
    budget: Budget,
    limits: dict[str, Amounts],
    percent: int = 10,
) -> tuple[list[list[str]], list[Any], dict[str, Account]]:
    log = await open_log("memory://")
    try:
        async with Worker(log, [kind, Treasurer], home=tmp_path), Client(log) as client:
            for name, amounts in limits.items():
                await client.publish(BudgetSet(account=name, limits=amounts, slice_percent=percent), key=name)
            begun = [await client.start(kind.agent_type, {"times": n}, budget=budget) for n in runs]
            said = await asyncio.gather(*(run.result(timeout=PATIENCE_S) for run in begun))
            histories = [[event async for event in run.events(follow=False)] for run in begun]
            accounts = {name: await account_of(log, name) for name in limits}
    finally:
        await log.close()
    return [one["answers"] for one in said], histories, accounts


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("percent", [0, 10, 50])
async def test_runs_on_several_partitions_keep_to_a_users_budget(
    tmp_path: Path, at_once: bool, percent: int
) -> None:
    model = Priced()
    kind = agent_with(model, at_once=at_once)
    limit = Amounts(calls=12)
    answers, histories, accounts = await spend(
        kind, tmp_path, [4] * 6, budget=Budget(accounts=(ADA,)), limits={ADA: limit}, percent=percent
    )
    assert model.made <= 12
    assert sum(one.count("yes") for one in answers) == model.made
    if percent == 0:
        assert model.made == 12  # nobody holds what he does not need
    account = accounts[ADA]
    assert not account.open
    assert account.spent["calls"] == model.made
    assert len(
        {
            event.payload["request_id"]
            for one in histories
            for event in one
            if event.event_type == "budget.requested"
        }
    ) == sum(event.event_type in ("budget.granted", "budget.refused") for one in histories for event in one)


async def test_a_user_and_a_tenant_pay_both_and_the_smaller_one_counts(tmp_path: Path) -> None:
    model = Priced()
    answers, _, accounts = await spend(
        agent_with(model),
        tmp_path,
        [5],
        budget=Budget(accounts=(ADA, "tenant:acme")),
        limits={ADA: Amounts(calls=9), "tenant:acme": Amounts(calls=3)},
    )
    assert answers[0].count("yes") == 3
    assert accounts[ADA].spent["calls"] == accounts["tenant:acme"].spent["calls"] == 3


async def test_money_that_a_run_has_not_used_goes_back(tmp_path: Path) -> None:
    model = Priced()
    _, _, accounts = await spend(
        agent_with(model),
        tmp_path,
        [1],
        budget=Budget(accounts=(ADA,)),
        limits={ADA: Amounts(nano_usd=10_000_000)},
    )
    assert accounts[ADA].spent["nano_usd"] == 30_000
    assert accounts[ADA].left("nano_usd") == 9_970_000


async def test_who_has_no_budget_calls_nothing_and_is_told(tmp_path: Path) -> None:
    model = Priced()
    answers, histories, _ = await spend(
        agent_with(model), tmp_path, [1], budget=Budget(accounts=("user:bob",)), limits={}
    )
    assert answers == [["no room"]]
    assert not model.made
    assert "nobody has said what it may spend" in of_type(histories[0], "model.denied")[0]["reason"]


@pytest.mark.parametrize(
    "crash",
    [
        "budget.requested",
        "budget.granted",
        "model.invoked",
        "effect.completed",
        "model.completed",
        "budget.settled",
    ],
)
@pytest.mark.parametrize("nth", [1, 2])
async def test_no_crash_spends_more_than_the_account_has(tmp_path: Path, crash: str, nth: int) -> None:
    model = Priced()
    kind = agent_with(model)
    async with Rehearsal(kind) as rehearsal, treasurer(rehearsal, tmp_path):
        await rehearsal.client.publish(
            BudgetSet(account=ADA, limits=Amounts(calls=4), slice_percent=0), key=ADA
        )
        rehearsal.crash_after(crash, nth)
        run = await rehearsal.start({"times": 6}, budget=Budget(accounts=(ADA,)))
        answers = (await run.result())["answers"]
        events, made = await run.history(), model.made
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        account = await account_of(rehearsal.log, ADA)
    assert verdict.difference is None
    assert model.made == made <= 4
    assert 3 <= answers.count("yes") <= 4
    assert len(of_type(events, "budget.settled")) == 1
    assert account.spent["calls"] <= 4
    assert not account.open


@pytest.mark.parametrize(("answer", "yes"), [(True, 2), (False, 1)])
async def test_where_an_account_is_empty_a_person_is_asked(tmp_path: Path, answer: bool, yes: int) -> None:
    model = Priced()
    kind = agent_with(model, budget=Budget(on_limit="ask"))
    async with Rehearsal(kind) as rehearsal, treasurer(rehearsal, tmp_path):
        await rehearsal.client.publish(BudgetSet(account=ADA, limits=Amounts(calls=1)), key=ADA)
        run = await rehearsal.start({"times": 2}, budget=Budget(accounts=(ADA,)))
        asked = await run.wait_for("approval.requested")
        await run.answer(approved=answer)
        answers = (await run.result())["answers"]
        account = await account_of(rehearsal.log, ADA)
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
    assert verdict.difference is None
    assert asked.payload["question"]["account"] == ADA
    assert answers.count("yes") == yes
    assert account.spent["calls"] == yes  # what a person has allowed beyond the limit is counted, too


def test_a_fork_has_no_slices_of_the_run_that_it_branches_off() -> None:
    nothing = {"nano_usd": 0, "tokens": 0, "calls": 0}
    for run_id, lacks in (("first", None), ("fork", Amounts(nano_usd=0, tokens=1, calls=1))):
        slices = Slices(run_id=run_id)
        asked = BudgetRequested(
            run_id="first", agent_type="spender", request_id="r", account=ADA, wanted=Amounts(calls=1)
        )
        granted = BudgetGranted(
            run_id="first", request_id="r", account=ADA, granted=Amounts(nano_usd=9, tokens=9, calls=9)
        )
        for event in (asked, granted):
            slices.apply(root_event(event, AgentRef("a", "a"), SystemClock()))
        assert slices.shortfall(ADA, Want(1, 0), nothing, nothing) == lacks
