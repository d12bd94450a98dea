"""Model calls of a node: made once, told of with tokens and cost, and read from the log by a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from noesium_stream.agent import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import (
    ModelAccessError,
    ModelAnswerError,
    ModelContextError,
    ModelOutageError,
    ModelRateLimitError,
    ModelRefusalError,
    RunFailedError,
)
from noesium_stream.event import EventEnvelope
from noesium_stream.kernel.retry import Retries
from noesium_stream.llm import JournaledLLM, LlamaCppLLM, OllamaLLM, OpenAILLM, OpenRouterLLM
from noesium_stream.log import open_log
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from tests.support.model_server import (
    ModelServer,
    Scripted,
    broken_json,
    calls,
    context_too_long,
    cut_off,
    lying,
    model_server,
    outage,
    paused,
    rate_limited,
    refusing,
    said,
)
from tests.support.reading import PATIENCE_S


class Notes(TypedDict, total=False):
    question: str
    answer: Any


class Verdict(BaseModel):
    good: bool
    reason: str


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as found:
        yield found


Node = Callable[[JournaledLLM, Notes], Awaitable[Any]]


def agent_asking(llm: JournaledLLM, node: Node) -> Any:
    async def ask(state: Notes) -> dict[str, Any]:
        return {"answer": await node(llm, state)}

    graph = StateGraph(Notes)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return agent_from_graph(graph, "asker")


def openai_llm(server: ModelServer, **more: Any) -> JournaledLLM:
    client = OpenAILLM("openai:gpt-4o-mini", base_url=server.openai, api_key="sk-secret", **more)
    return JournaledLLM(client)


async def complete(llm: JournaledLLM, state: Notes) -> str:
    return await llm.complete(state["question"])


async def outcome(
    kind: Any, server: ModelServer, crash: tuple[str, int] | None = None
) -> tuple[Any, list[EventEnvelope]]:
    """The answer of a run, or its error, and its events; a replay does the same and calls nothing."""
    async with Rehearsal(kind) as rehearsal:
        if crash is not None:
            rehearsal.crash_after(*crash)
        run = await rehearsal.start({"question": "what is it?"})
        try:
            answer: Any = (await run.result())["answer"]
        except RunFailedError as error:
            answer = error
        events = await run.history()
        asked = len(server.requests)
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        assert verdict.difference is None
        assert len(server.requests) == asked, "a replay called"
    return answer, events


def of_type(events: list[EventEnvelope], event_type: str) -> list[dict[str, Any]]:
    return [event.payload for event in events if event.event_type == event_type]


def told(events: list[EventEnvelope]) -> list[str]:
    return [event.event_type for event in events if event.event_type.startswith("model.")]


async def test_a_call_is_told_of_with_tokens_and_cost_in_the_commits_of_its_effect(
    server: ModelServer,
) -> None:
    server.script(said("it is four"))
    answer, events = await outcome(agent_asking(openai_llm(server, seed=7), complete), server)
    assert answer == "it is four"
    (invoked,), (done,) = of_type(events, "model.invoked"), of_type(events, "model.completed")
    (asked,) = of_type(events, "effect.requested")
    assert invoked["call_id"] == done["call_id"] == asked["effect_id"]
    assert asked["arguments"]["kwargs"]["parameters"]["seed"] == 7
    assert (done["input_tokens"], done["output_tokens"], done["estimated"]) == (3, 3, False)
    assert done["cost_nano_usd"] == 3 * 150 + 3 * 600
    assert invoked["reserved_nano_usd"] > done["cost_nano_usd"]
    assert done["answered_by"] == "gpt-4o-mini fp_test"
    assert "sk-secret" not in str([event.payload for event in events])


@pytest.mark.parametrize(
    "crash", ["model.invoked", "effect.requested", "model.completed", "effect.completed", "run.started"]
)
async def test_after_a_crash_at_any_event_the_call_has_one_end(crash: str, server: ModelServer) -> None:
    server.script(said("one"), said("one"))
    answer, events = await outcome(agent_asking(openai_llm(server), complete), server, (crash, 1))
    assert answer == "one"
    kinds = told(events)
    assert [kind for kind in kinds if kind != "model.repeated"] == ["model.invoked", "model.completed"]
    assert 1 <= len(server.requests) <= 1 + kinds.count("model.repeated")


@pytest.mark.parametrize(
    ("answer", "error", "charged"),
    [
        (rate_limited(2), ModelRateLimitError, False),
        (context_too_long(), ModelContextError, False),
        (outage(503), ModelOutageError, False),
        (Scripted("no such key", status=401), ModelAccessError, False),
        (broken_json(), ModelAnswerError, True),
        (Scripted(raw=b'{"choices": 5}'), ModelAnswerError, True),
        (cut_off("a long answer"), ModelAnswerError, True),
    ],
)
async def test_a_failure_is_recorded_by_its_class(
    answer: Scripted, error: type[Exception], charged: bool, server: ModelServer
) -> None:
    server.script(answer)
    found, events = await outcome(agent_asking(openai_llm(server), complete), server)
    assert isinstance(found, RunFailedError)
    (failed,) = of_type(events, "model.failed")
    assert (failed["error_type"], failed["charged"]) == (error.__name__, charged)
    assert error.__name__ in str(found)


async def test_a_server_that_is_not_there_is_an_outage(server: ModelServer) -> None:
    llm = JournaledLLM(OpenAILLM("openai:gpt-4o-mini", base_url="http://127.0.0.1:9/v1", api_key="k"))
    _, events = await outcome(agent_asking(llm, complete), server)
    assert of_type(events, "model.failed")[0]["error_type"] == "ModelOutageError"


async def test_a_call_is_repeated_when_the_provider_wants_to_be_asked_again(server: ModelServer) -> None:
    server.script(rate_limited(20), said("now"))
    client = OpenAILLM("openai:gpt-4o-mini", base_url=server.openai, api_key="k")
    llm = JournaledLLM(client, retries=Retries(max_attempts=2, initial_interval=1))
    answer, events = await outcome(agent_asking(llm, complete), server)
    assert answer == "now"
    assert of_type(events, "effect.failed")[0]["retry_in_ms"] == 20_000
    assert told(events) == ["model.invoked", "model.failed", "model.invoked", "model.completed"]


async def test_a_refusal_costs_and_is_an_error_of_its_own(server: ModelServer) -> None:
    server.script(refusing("I won't"))
    found, events = await outcome(agent_asking(openai_llm(server), complete), server)
    assert isinstance(found, RunFailedError)
    assert ModelRefusalError.__name__ in str(found)
    assert of_type(events, "model.completed")[0]["cost_nano_usd"] > 0


@pytest.mark.parametrize(
    "claimed",
    [
        {"prompt_tokens": -5, "completion_tokens": 1, "total_tokens": -4},
        {"prompt_tokens": 10**15, "completion_tokens": 3, "total_tokens": 10**15},
        {"prompt_tokens": 10**7, "completion_tokens": 3, "total_tokens": 10**7},
    ],
)
async def test_tokens_that_cannot_be_true_are_replaced_by_an_estimate(
    claimed: dict[str, Any], server: ModelServer
) -> None:
    server.script(lying("it is four", claimed))
    _, events = await outcome(agent_asking(openai_llm(server), complete), server)
    (done,) = of_type(events, "model.completed")
    assert done["estimated"]
    assert 0 < done["input_tokens"] < 100
    assert 0 < done["cost_nano_usd"] < 100_000


async def test_an_answer_of_a_schema_is_checked_and_repaired_once(server: ModelServer) -> None:
    server.script(said('{"good": "perhaps"}'), said('{"good": true, "reason": "it is"}'))

    async def judge(llm: JournaledLLM, state: Notes) -> Any:
        verdict = await llm.structured(state["question"], Verdict)
        assert isinstance(verdict, Verdict)
        return verdict.model_dump()

    answer, events = await outcome(agent_asking(openai_llm(server), judge), server)
    assert answer == {"good": True, "reason": "it is"}
    assert len(of_type(events, "model.completed")) == 2
    first, second = (body for _, _, body in server.requests)
    assert first["response_format"]["json_schema"]["schema"]["required"] == ["good", "reason"]
    assert "not of the schema" in second["messages"][-1]["content"]


async def test_an_answer_that_is_never_of_the_schema_ends_after_one_repair(server: ModelServer) -> None:
    server.script(*(said("no json") for _ in range(5)))

    async def judge(llm: JournaledLLM, state: Notes) -> Any:
        return await llm.structured(state["question"], {"type": "object", "required": ["a"]})

    found, _ = await outcome(agent_asking(openai_llm(server), judge), server)
    assert "The answer is no JSON" in str(found)
    assert len(server.requests) == 2


def weather(city: str) -> str:
    """The weather of a city."""
    return city


async def converse(llm: JournaledLLM, state: Notes) -> Any:
    messages: list[Any] = [{"role": "user", "content": state["question"]}]
    first = await llm.ask(messages, tools=[weather])
    (call,) = first.tool_calls
    messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    return [call.name, call.arguments, (await llm.ask(messages, tools=[weather])).text]


@pytest.mark.parametrize("provider", ["openai", "ollama", "openrouter", "llamacpp"])
async def test_a_conversation_with_tools(provider: str, server: ModelServer) -> None:
    server.script(calls(("weather", {"city": "Ulm"})), said("it rains"))
    answer, events = await outcome(agent_asking(JournaledLLM(client_of(provider, server)), converse), server)
    assert answer == ["weather", {"city": "Ulm"}, "it rains"]
    assert server.requests[1][2]["messages"][-1]["role"] == "tool"
    assert len(of_type(events, "model.completed")) == 2


def client_of(provider: str, server: ModelServer) -> Any:
    if provider == "ollama":
        return OllamaLLM("ollama:llama3.2", base_url=server.url)
    if provider == "openrouter":
        return OpenRouterLLM("openrouter:openai/gpt-4o-mini", base_url=server.openai, api_key="k")
    if provider == "llamacpp":
        return LlamaCppLLM("llamacpp:qwen3", base_url=server.openai)
    return OpenAILLM("openai:gpt-4o-mini", base_url=server.openai, api_key="k")


@pytest.mark.parametrize("provider", ["openai", "ollama", "llamacpp"])
async def test_vectors_of_texts_are_recorded(provider: str, server: ModelServer) -> None:
    async def embed(llm: JournaledLLM, state: Notes) -> Any:
        return await llm.embed(["a b"] * 17)

    answer, events = await outcome(agent_asking(JournaledLLM(client_of(provider, server)), embed), server)
    assert answer == [[3.0, 2.0]] * 17
    assert [one["operation"] for one in of_type(events, "model.invoked")] == ["embeddings"] * 2


async def test_the_cost_is_what_openrouter_reports(server: ModelServer) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10, "cost": 0.00025}
    server.script(lying("yes", usage))
    llm = JournaledLLM(client_of("openrouter", server))
    _, events = await outcome(agent_asking(llm, complete), server)
    assert of_type(events, "model.completed")[0]["cost_nano_usd"] == 250_000


async def test_a_price_that_nobody_knows_is_none(server: ModelServer) -> None:
    client = OpenAILLM("openai:nobody-knows", base_url=server.openai, api_key="k")
    _, events = await outcome(agent_asking(JournaledLLM(client), complete), server)
    assert of_type(events, "model.completed")[0]["cost_nano_usd"] is None
    declared = OpenAILLM(
        "openai:nobody-knows", base_url=server.openai, api_key="k", prices={"input": 1, "output": 2}
    )
    _, events = await outcome(agent_asking(JournaledLLM(declared), complete), server)
    assert of_type(events, "model.completed")[0]["cost_nano_usd"] == 3 * 1_000 + 3 * 2_000


@pytest.mark.parametrize("provider", ["openai", "ollama"])
async def test_its_text_is_there_in_pieces_while_it_comes(
    provider: str, server: ModelServer, tmp_path: Path
) -> None:
    answer = paused("one two three four")
    server.script(answer)
    llm = JournaledLLM(client_of(provider, server))

    async def tell(llm: JournaledLLM, state: Notes) -> str:
        return await llm.complete(state["question"], stream=True)

    log = await open_log("memory://")
    try:
        async with Worker(log, [agent_asking(llm, tell)], home=tmp_path), Client(log) as client:
            run = await client.start("asker", {"question": "count"})
            found = ""
            async with asyncio.timeout(PATIENCE_S):
                async for piece in run.pieces():
                    found += piece.data
                    assert answer.rest is not None
                    answer.rest.set()  # the server has waited for the first piece to be here
            assert found == "one two three four"
            assert (await run.result(timeout=PATIENCE_S))["answer"] == found
            events = [event async for event in run.events(follow=False)]
    finally:
        await log.close()
    (done,) = of_type(events, "model.completed")
    assert (done["output_tokens"], done["estimated"]) == (4, False)


async def test_pieces_that_break_off_are_no_answer(server: ModelServer) -> None:
    server.script(cut_off("one two three", pieces=2), said("whole"))

    async def tell(llm: JournaledLLM, state: Notes) -> str:
        return await llm.complete(state["question"], stream=True)

    client = OpenAILLM("openai:gpt-4o-mini", base_url=server.openai, api_key="k")
    llm = JournaledLLM(client, retries=Retries(max_attempts=2, initial_interval=1))
    answer, events = await outcome(agent_asking(llm, tell), server)
    assert answer == "whole"
    assert of_type(events, "model.failed")[0]["error_type"] == "ModelAnswerError"
