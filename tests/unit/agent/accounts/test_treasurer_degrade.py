"""An account without room, where the budget says `degrade`: a cheaper model is asked instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import BudgetExceededError
from noesium_stream.event.standard import Amounts, BudgetSet
from noesium_stream.event.trust.budget import Budget
from noesium_stream.kernel.modes import ModelParameters
from noesium_stream.llm import JournaledLLM, ModelRouter, Route
from noesium_stream.testing import Rehearsal
from tests.unit.agent.accounts.test_treasurer import account_of, treasurer
from tests.unit.llm.test_gate import Priced, of_type

PAYERS = ("user:ada", "tenant:acme")
LIMITS = {"user:ada": Amounts(nano_usd=10**9), "tenant:acme": Amounts(nano_usd=150_000)}


class State(TypedDict, total=False):
    answers: list[str]


class Free(Priced):
    """A model on the user's own machine."""

    model = "fake:free"
    parameters = ModelParameters("fake:free", "1", 0, 0)
    charges = False

    async def generate(self, prompt: Any, **more: Any) -> dict[str, Any]:
        return {**await super().generate(prompt, **more), "text": "cheap", "cost_nano_usd": 0}


def agent_routing(dear: Priced, free: Free, on_limit: Any) -> Any:
    router = ModelRouter([Route(JournaledLLM(dear), cost=10), Route(JournaledLLM(free), cost=0)])

    async def one(number: int) -> str:
        try:
            return await router.complete(f"{number:010}")
        except BudgetExceededError:
            return "no room"

    async def ask(state: State) -> State:
        return {"answers": [await one(number) for number in range(4)]}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    kind = agent_from_graph(graph, "spender")
    kind.budget = Budget(on_limit=on_limit)
    return kind


@pytest.mark.parametrize(
    "crash", [None, "budget.refused", "model.denied", "model.switched", "model.completed"]
)
@pytest.mark.parametrize("on_limit", ["degrade", "end"])
async def test_the_smaller_account_decides_which_model_is_asked(
    tmp_path: Path, on_limit: str, crash: str | None
) -> None:
    if on_limit == "end" and crash == "model.switched":
        return  # there is none
    dear, free = Priced(), Free()
    kind = agent_routing(dear, free, on_limit)
    async with Rehearsal(kind) as rehearsal, treasurer(rehearsal, tmp_path):
        for name, limits in LIMITS.items():
            await rehearsal.client.publish(BudgetSet(account=name, limits=limits, slice_percent=0), key=name)
        if crash is not None:
            rehearsal.crash_after(crash)
        run = await rehearsal.start({}, budget=Budget(accounts=PAYERS))
        answers = (await run.result())["answers"]
        events, made = await run.history(), (dear.made, free.made)
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        accounts = [await account_of(rehearsal.log, name) for name in PAYERS]
    assert verdict.difference is None
    assert (dear.made, free.made) == made
    # A call of the dear model may take 120,000 nano-dollars and takes 30,000: the second one fits, too.
    assert answers == ["yes", "yes", *(["cheap"] * 2 if on_limit == "degrade" else ["no room"] * 2)]
    assert dear.made == 2
    switched = [(one["to_model"], one["kind"]) for one in of_type(events, "model.switched")]
    assert switched == ([("fake:free", "budget")] * 2 if on_limit == "degrade" else [])
    for account in accounts:
        assert account.spent["nano_usd"] == 60_000
        assert account.spent["calls"] == sum(made) + len(of_type(events, "model.repeated"))
        assert not account.open
