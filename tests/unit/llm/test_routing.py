"""Routing: which model is asked, what a failure leads to, and that a replay takes the same way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import ConfigError, RunFailedError
from noesium_stream.event.trust.budget import Budget
from noesium_stream.llm import JournaledLLM, OllamaLLM, OpenAILLM
from noesium_stream.llm.routing import ModelRouter, Route
from noesium_stream.testing import Rehearsal
from tests.support.model_server import (
    ModelServer,
    Scripted,
    context_too_long,
    model_server,
    outage,
    rate_limited,
    refusing,
    said,
)


class Asked(TypedDict, total=False):
    answer: str


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as found:
        yield found


def routes(server: ModelServer, **of_first: Any) -> list[Route]:
    first = OpenAILLM("openai:gpt-4o", base_url=server.openai, api_key="k")
    second = OllamaLLM("ollama:llama3.2", base_url=server.url)
    return [Route(JournaledLLM(first), cost=10, **of_first), Route(JournaledLLM(second), latency="fast")]


def agent_asking(router: ModelRouter, budget: Budget | None = None) -> Any:
    async def ask(state: Asked) -> dict[str, Any]:
        return {"answer": await router.complete("why?")}

    graph = StateGraph(Asked)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    kind = agent_from_graph(graph, "router")
    kind.budget = budget
    return kind


async def outcome(kind: Any, server: ModelServer, crash: str | None = None) -> tuple[Any, list[Any]]:
    async with Rehearsal(kind) as rehearsal:
        if crash is not None:
            rehearsal.crash_after(crash)
        run = await rehearsal.start({})
        try:
            answer: Any = (await run.result())["answer"]
        except RunFailedError as error:
            answer = error
        events, asked = await run.history(), len(server.requests)
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        assert verdict.difference is None
        assert len(server.requests) == asked
    return answer, [event.payload for event in events if event.event_type == "model.switched"]


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (rate_limited(), "rate_limit"),
        (context_too_long(), "context"),
        (refusing("no"), "refusal"),
        (outage(), "outage"),
    ],
)
@pytest.mark.parametrize("crash", [None, "model.failed", "model.switched", "model.completed"])
async def test_a_failure_leads_to_the_next_model_and_is_told_once(
    failure: Scripted, kind: str, crash: str | None, server: ModelServer
) -> None:
    if kind == "refusal" and crash == "model.failed":
        return  # a refusal is an answer
    server.script(failure, said("because"), said("because"))
    answer, switched = await outcome(agent_asking(ModelRouter(routes(server))), server, crash)
    assert answer == "because"
    assert [(one["from_model"], one["to_model"], one["kind"]) for one in switched] == [
        ("openai:gpt-4o", "ollama:llama3.2", kind)
    ]


async def test_a_failure_of_another_class_ends_it(server: ModelServer) -> None:
    server.script(Scripted("no such key", status=401))
    answer, switched = await outcome(agent_asking(ModelRouter(routes(server))), server)
    assert "ModelAccessError" in str(answer)
    assert switched == []
    server.script(outage())
    answer, switched = await outcome(agent_asking(ModelRouter(routes(server), fall_back=())), server)
    assert "ModelOutageError" in str(answer)
    assert switched == []


@pytest.mark.parametrize(("on_limit", "degrades"), [("degrade", True), ("end", False)])
async def test_without_room_in_the_budget_a_cheaper_model_is_asked_where_it_says_so(
    on_limit: Any, degrades: bool, server: ModelServer
) -> None:
    budget = Budget(usd=0.000001, on_limit=on_limit)
    answer, switched = await outcome(agent_asking(ModelRouter(routes(server)), budget), server)
    assert (answer == "why?") is degrades
    assert [one["kind"] for one in switched] == (["budget"] if degrades else [])
    assert len(server.requests) == int(degrades)


def test_the_order_is_by_task_capability_cost_and_latency(server: ModelServer) -> None:
    found = routes(server, tasks=("plan",), capabilities=("tools",))

    def names(router: ModelRouter, *of: Any) -> list[str]:
        return [route.llm.model for route in router.order(*of)]

    assert names(ModelRouter(found), "plan") == ["openai:gpt-4o", "ollama:llama3.2"]
    assert names(ModelRouter(found), "other") == ["ollama:llama3.2"]
    assert names(ModelRouter(found), "plan", ["tools"]) == ["openai:gpt-4o"]
    assert names(ModelRouter(found, prefer="cost"), "plan")[0] == "ollama:llama3.2"
    assert names(ModelRouter(found, prefer="latency"), "plan")[0] == "ollama:llama3.2"
    with pytest.raises(ConfigError, match="No model is declared for the task 'other'"):
        ModelRouter(found).order("other", ["tools"])
    with pytest.raises(ConfigError, match="each of them once"):
        ModelRouter([found[0], found[0]])
