"""Budgets: reserved before a call, settled after it; no crash and no fan-out spends more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import BaseGraphicAgent, capability, current_step
from noesium_stream.agent import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import BudgetExceededError, ModelOutageError, RunFailedError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.trust.budget import Budget
from noesium_stream.kernel.modes import ModelParameters
from noesium_stream.llm import JournaledLLM
from noesium_stream.log import open_log
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S


class State(TypedDict, total=False):
    times: int
    answers: list[str]


class Priced:
    """A model that writes 10 tokens, of at most 100, at a dollar per million; each prompt is 20 tokens."""

    model = "fake:priced"
    parameters = ModelParameters("fake:priced", "1", 0, 0)
    max_output_tokens = 100

    def __init__(self) -> None:
        self.made = 0
        self.failing = False

    def price(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int | None:
        return (input_tokens + output_tokens) * 1_000

    async def generate(
        self, prompt: Any, *, parameters: Any = None, tools: Any = None, schema: Any = None, write: Any = None
    ) -> dict[str, Any]:
        self.made += 1
        await asyncio.sleep(0)
        if self.failing:
            raise ModelOutageError("it is away")
        usage = {"input_tokens": 20, "output_tokens": 10, "cached_tokens": None, "estimated": False}
        return {"text": "yes", "usage": usage, "cost_nano_usd": 30_000}

    async def embed(self, texts: Any) -> dict[str, Any]:
        raise NotImplementedError


def agent_with(model: Priced, *, at_once: bool = False, budget: Budget | None = None) -> Any:
    llm = JournaledLLM(model)

    async def one(number: int) -> str:
        try:
            return await llm.complete(f"{number:010}")
        except BudgetExceededError:
            return "no room"
        except ModelOutageError:
            return "away"

    async def ask(state: State) -> dict[str, Any]:
        numbers = range(state["times"])
        if at_once:
            return {"answers": await asyncio.gather(*(one(number) for number in numbers))}
        return {"answers": [await one(number) for number in numbers]}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    kind = agent_from_graph(graph, "spender")
    kind.budget = budget
    return kind


def of_type(events: list[EventEnvelope], event_type: str) -> list[dict[str, Any]]:
    return [event.payload for event in events if event.event_type == event_type]


async def spent_by(
    kind: Any, model: Priced, times: int, crash: tuple[str, int] | None = None, **options: Any
) -> tuple[list[str], list[EventEnvelope]]:
    async with Rehearsal(kind) as rehearsal:
        if crash is not None:
            rehearsal.crash_after(*crash)
        run = await rehearsal.start({"times": times}, **options)
        answers = (await run.result())["answers"]
        events, made = await run.history(), model.made
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        assert verdict.difference is None
        assert model.made == made
    return answers, events


@pytest.mark.parametrize("at_once", [False, True])
async def test_calls_stop_at_the_limit_also_side_by_side(at_once: bool) -> None:
    model = Priced()
    answers, events = await spent_by(agent_with(model, at_once=at_once, budget=Budget(calls=3)), model, 5)
    assert sorted(answers) == ["no room", "no room", "yes", "yes", "yes"]
    assert model.made == 3
    assert len(of_type(events, "model.denied")) == 2
    assert len(of_type(events, "model.completed")) == 3


async def test_side_by_side_each_call_reserves_the_most_it_may_take() -> None:
    model = Priced()
    kind = agent_with(model, at_once=True, budget=Budget(tokens=300))
    answers, _ = await spent_by(kind, model, 10)
    assert answers.count("yes") == 2  # of 120 tokens each, at most, as nobody knows yet what they take
    one_by_one = Priced()
    answers, _ = await spent_by(agent_with(one_by_one, budget=Budget(tokens=300)), one_by_one, 10)
    assert answers.count("yes") == 7  # 30 tokens each, once they are settled


async def test_the_smallest_of_the_agents_and_the_runs_budget_counts() -> None:
    model = Priced()
    kind = agent_with(model, budget=Budget(calls=4))
    answers, events = await spent_by(kind, model, 5, budget=Budget(calls=2))
    assert answers.count("yes") == 2
    assert of_type(events, "run.started")[0]["budget"] == {"calls": 2}
    more = Priced()
    answers, _ = await spent_by(agent_with(more, budget=Budget(calls=4)), more, 5, budget=Budget(calls=9))
    assert answers.count("yes") == 4


@pytest.mark.parametrize(
    "crash", ["model.invoked", "model.completed", "effect.requested", "effect.completed"]
)
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_no_crash_spends_more_than_the_budget(crash: str, nth: int) -> None:
    model = Priced()
    answers, events = await spent_by(agent_with(model, budget=Budget(calls=4)), model, 6, (crash, nth))
    assert model.made <= 4
    assert 3 <= answers.count("yes") <= 4  # the call that was lost has cost a place
    invoked = [one["call_id"] for one in of_type(events, "model.invoked")]
    ends = of_type(events, "model.completed") + of_type(events, "model.failed")
    assert sorted(invoked) == sorted(one["call_id"] for one in ends)


async def test_a_call_that_was_cut_off_counts_also_if_there_is_no_room_to_make_it_again() -> None:
    model = Priced()
    answers, events = await spent_by(
        agent_with(model, budget=Budget(tokens=200)), model, 3, ("model.invoked", 1)
    )
    (failed,) = of_type(events, "model.failed")
    assert (failed["error_type"], failed["charged"]) == ("BudgetExceededError", True)
    assert answers == ["no room"] * 3  # 120 of 200 may have been taken, and a call may take 120
    assert len(of_type(events, "model.denied")) == 2


async def test_a_call_that_was_not_charged_gives_its_reservation_back() -> None:
    model = Priced()
    model.failing = True
    answers, _ = await spent_by(agent_with(model, budget=Budget(tokens=130)), model, 5)
    assert answers == ["away"] * 5
    assert model.made == 5


async def test_where_money_is_limited_a_call_without_a_price_has_no_room() -> None:
    model = Priced()
    model.price = lambda *_: None  # type: ignore[method-assign]
    answers, events = await spent_by(agent_with(model, budget=Budget(usd=5)), model, 1)
    assert answers == ["no room"]
    assert "price is not known" in of_type(events, "model.denied")[0]["reason"]
    free = Priced()
    free.price, free.charges = (lambda *_: None), False  # type: ignore[method-assign, attr-defined]
    answers, _ = await spent_by(agent_with(free, budget=Budget(usd=0)), free, 1)
    assert answers == ["yes"]


@pytest.mark.parametrize(("answer", "yes"), [(True, 2), ({"calls": 2}, 3), (False, 1)])
async def test_a_person_is_asked_for_more(answer: Any, yes: int) -> None:
    model = Priced()
    kind = agent_with(model, budget=Budget(calls=1, on_limit="ask"))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"times": 3 if isinstance(answer, dict) else 2})
        await run.wait_for("approval.requested")
        await (run.reject() if answer is False else run.answer(answer))
        answers = (await run.result())["answers"]
        events = await run.history()
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        assert verdict.difference is None
    assert answers.count("yes") == yes
    assert of_type(events, "approval.requested")[0]["question"]["budget"] == "calls of models"


async def test_a_node_that_does_not_catch_it_ends_its_run() -> None:
    model = Priced()
    llm = JournaledLLM(model)

    async def ask(state: State) -> dict[str, Any]:
        return {"answers": [await llm.complete("0123456789")]}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    kind = agent_from_graph(graph, "spender")
    kind.budget = Budget(calls=0)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"times": 1})
        with pytest.raises(RunFailedError, match="0 of 0 calls of models are taken, and it may take 1"):
            await run.result()
    assert not model.made


SHARED = Priced()


class Child(BaseGraphicAgent):
    agent_type = "child"

    @capability("text.write")
    async def write(self, text: str) -> str:
        """Write."""
        llm = JournaledLLM(SHARED)
        return "".join([await llm.complete(f"{text}{number:05}") for number in range(2)])


class Parent(BaseGraphicAgent):
    agent_type = "parent"
    budget = Budget(calls=10, tokens=1_000, share=0.5)

    @capability("text.all")
    async def all(self, text: str) -> str:
        """Write all."""
        await current_step().invoke("text.write", {"text": text})
        try:
            return await JournaledLLM(SHARED).complete("x" * 3_000)
        except BudgetExceededError as error:
            return error.message


async def test_a_called_run_has_a_share_and_the_answer_settles_it(tmp_path: Path) -> None:
    log = await open_log("memory://")
    try:
        async with Worker(log, [Parent, Child], home=tmp_path), Client(log) as client:
            run = await client.start("parent", {"text": "12345"})
            said = await run.result(timeout=PATIENCE_S)
            events = [event async for event in run.events(follow=False)]
            (invoked,) = of_type(events, "capability.invoked")
            child = await client.get_run(invoked["run_id"])
            below = [event async for event in child.events(follow=False)]
    finally:
        await log.close()
    assert invoked["budget"] == {"tokens": 500, "calls": 5}
    assert of_type(below, "run.started")[0]["budget"] == {"tokens": 500, "calls": 5}
    (answer,) = of_type(events, "capability.completed")
    assert answer["spent"] == {"nano_usd": 60_000, "tokens": 60, "calls": 2}
    assert "60 of 1,000 tokens are taken" in str(said)
