"""The budget of a run, where a chat model of LangChain is asked: what no call took is given back, no more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph

from noesium_stream import journaled_model
from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import BudgetExceededError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.trust.budget import Budget
from noesium_stream.llm import JournaledLLM
from noesium_stream.llm.gate import ModelGate
from noesium_stream.testing import Rehearsal
from tests.support.scripted_chat import ScriptedChat
from tests.unit.llm.test_gate import Priced, of_type

Ask = Callable[[], Awaitable[Any]]


class State(TypedDict, total=False):
    answers: list[str]


def chat() -> tuple[ScriptedChat, Ask]:
    model = ScriptedChat(lines=[AIMessage("yes")])
    journaled = journaled_model(model)
    return model, lambda: journaled.ainvoke("why?")


def agent_asking(ask: Ask, times: int, budget: Budget) -> Any:
    async def one() -> str:
        try:
            await ask()
        except BudgetExceededError:
            return "no room"
        except ConnectionError:
            return "away"
        return "yes"

    async def node(state: State) -> State:
        return {"answers": [await one() for _ in range(times)]}

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    kind = agent_from_graph(graph, "spender")
    kind.budget = budget
    return kind


async def played(kind: Any, crash: tuple[str, int] | None = None) -> tuple[list[str], list[EventEnvelope]]:
    async with Rehearsal(kind) as rehearsal:
        if crash is not None:
            rehearsal.crash_after(*crash)
        run = await rehearsal.start({})
        answers = (await run.result())["answers"]
        events = await run.history()
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        assert verdict.difference is None
    return answers, events


async def test_a_call_that_was_cut_off_is_charged_where_there_is_no_room_to_make_it_again() -> None:
    model, ask = chat()
    budget = Budget(tokens=6_000)  # a call may take more than 4,096
    answers, events = await played(agent_asking(ask, 3, budget), ("model.invoked", 1))
    (failed,) = of_type(events, "model.failed")
    assert (failed["error_type"], failed["charged"]) == ("BudgetExceededError", True)
    assert answers == ["no room"] * 3
    assert len(of_type(events, "model.denied")) == 2
    assert not model.asked


async def test_a_call_that_a_crash_cut_off_is_made_again_where_there_is_room_for_both() -> None:
    _, ask = chat()
    answers, events = await played(agent_asking(ask, 3, Budget(tokens=9_000)), ("model.invoked", 1))
    assert answers == ["yes", "yes", "yes"]
    assert len(of_type(events, "model.repeated")) == 1
    answers, _ = await played(agent_asking(ask, 3, Budget(calls=2)), ("model.invoked", 1))
    assert answers == ["yes", "no room", "no room"]  # the call that was lost counts


@pytest.mark.parametrize("of", ["langchain", "client"])
async def test_a_call_that_never_came_to_the_log_reserves_nothing(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = JournaledLLM(Priced())
    ask = chat()[1] if of == "langchain" else lambda: llm.complete("0123456789")
    real, failures = ModelGate.turn, [ConnectionError("not now")]

    def turn(gate: ModelGate) -> Any:
        if failures:  # the call has passed its gate
            raise failures.pop()
        return real(gate)

    monkeypatch.setattr(ModelGate, "turn", turn)
    tokens = 6_000 if of == "langchain" else 200
    kind = agent_asking(ask, 2, Budget(tokens=tokens))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({})
        assert (await run.result())["answers"] == ["away", "yes"]
