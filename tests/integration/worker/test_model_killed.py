"""A worker that is killed in the middle of a model call: the call is made again, and paid for twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from noesium_stream.agent.accounts import Accounts
from noesium_stream.client import Client
from noesium_stream.client.views.costs import read_costs
from noesium_stream.event.standard import Amounts, BudgetSet
from noesium_stream.event.trust.budget import Budget
from tests.support.backends import Backend
from tests.support.model_server import held, model_server, said
from tests.support.processes import Program
from tests.support.reading import PATIENCE_S, eventually, stored

ADA = "user:ada"


@pytest.mark.needs("several_processes")
async def test_a_call_that_a_kill_cut_off_is_made_again_and_settled_once(
    backend: Backend, tmp_path: Path
) -> None:
    log, never = await backend.open(), held("nobody hears this")
    with model_server([never, said("it is four")]) as server:
        programs = [await start(backend, tmp_path / "one", server.openai)]
        try:
            await programs[0].line("at work")
            async with Client(log) as client:
                await client.publish(BudgetSet(account=ADA, limits=Amounts(calls=2)), key=ADA)
                run = await client.start("asker", {"question": "2 + 2?"}, budget=Budget(accounts=(ADA,)))
                await eventually(lambda: asyncio.sleep(0, bool(server.requests)))
                await programs[0].kill()
                programs.append(await start(backend, tmp_path / "two", server.openai))
                result = await run.result(timeout=2 * PATIENCE_S)
                events = [event async for event in run.events(follow=False)]
                costs = (await read_costs(log, ["asker"])).costs("run")
        finally:
            assert never.release is not None
            never.release.set()
            for program in programs:
                await program.kill()
    assert result["answer"] == "it is four"
    assert len(server.requests) == 2
    told = Counter(event.event_type for event in events if event.event_type.startswith("model."))
    assert told == {"model.invoked": 1, "model.repeated": 1, "model.completed": 1}
    (done,) = [event.payload for event in events if event.event_type == "model.completed"]
    (invoked,) = [event.payload for event in events if event.event_type == "model.invoked"]
    assert (costs[0].calls, costs[0].lost, costs[0].nano_usd) == (2, 1, done["cost_nano_usd"])
    fold, account = Accounts(), Accounts().initial_state()
    settled = 0
    for record in await stored(log, log.topology.events("budget")):
        account = fold.apply(account, record.envelope)
        settled += record.event_type == "budget.settled"
    assert settled == 1
    assert not account.open
    taken = invoked["reserved_tokens"] + done["input_tokens"] + done["output_tokens"]
    assert account.spent == {
        "calls": 2,
        "tokens": taken,
        "nano_usd": invoked["reserved_nano_usd"] + done["cost_nano_usd"],
    }


async def start(backend: Backend, home: Path, model_url: str) -> Program:
    return await Program.start("tests.support.asking", backend.url, home, model_url)
