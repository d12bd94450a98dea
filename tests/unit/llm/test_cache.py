"""An answer that a cache gives again is recorded as one, costs nothing, and is not looked for by a replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.clock import VirtualClock
from noesium_stream.errors import ConfigError, ModelOutageError
from noesium_stream.llm import CachedAnswer, JournaledLLM, MemoryCache, OpenAILLM
from noesium_stream.testing import Rehearsal
from tests.support.model_server import ModelServer, model_server, outage, said


class Notes(TypedDict, total=False):
    questions: list[str]
    answers: list[str]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as found:
        yield found


def agent_asking(server: ModelServer, cache: MemoryCache, **settings: Any) -> Any:
    client = OpenAILLM("openai:gpt-4o-mini", base_url=server.openai, api_key="k", **settings)
    llm = JournaledLLM(client, cache=cache)

    async def ask(state: Notes) -> Notes:
        found = []
        for question in state["questions"]:
            try:
                found.append(await llm.complete(question, stream=True))
            except ModelOutageError:
                found.append("outage")
        return {"answers": found}

    return agent_from_graph(StateGraph(Notes).add_node("ask", ask).add_edge(START, "ask"), "asker")


async def played(
    kind: Any, server: ModelServer, *questions: str
) -> tuple[list[str], list[dict[str, Any]], str]:
    """Answers, payloads of `model.completed`, and the pieces; a replay asks nobody and finds the same."""
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"questions": list(questions)})
        answers = (await run.result())["answers"]
        done = [event.payload for event in await run.history() if event.event_type == "model.completed"]
        handle = await rehearsal.client.get_run(run.id)
        pieces = "".join([str(piece.data) async for piece in handle.pieces()])
        asked = len(server.requests)
        assert (await verify(handle, agent_target(kind, rehearsal.log))).difference is None
        assert len(server.requests) == asked
    return answers, done, pieces


async def test_the_same_prompt_is_answered_again_at_no_cost_and_says_by_which_call(
    server: ModelServer,
) -> None:
    server.script(said("it is four"), said("it is five"))
    kind = agent_asking(server, MemoryCache())
    answers, (first, second, again), pieces = await played(kind, server, "4?", "5?", "4?")
    assert answers == ["it is four", "it is five", "it is four"]
    assert len(server.requests) == 2
    assert pieces == "it is fourit is fiveit is four"
    assert again["repeats"] == first["call_id"]
    assert (again["cost_nano_usd"], again["input_tokens"], again["output_tokens"]) == (0, 0, 0)
    assert first["cost_nano_usd"] > 0
    assert "repeats" not in first
    assert "repeats" not in second
    # Another run of the same process is given it as well.
    answers, (later,), _ = await played(kind, server, "4?")
    assert (answers, later["repeats"]) == (["it is four"], first["call_id"])
    assert len(server.requests) == 2


async def test_another_setting_asks_the_model_and_a_failure_is_not_kept(server: ModelServer) -> None:
    server.script(outage(), said("four"), said("vier"))
    cache = MemoryCache()
    answers, _, _ = await played(agent_asking(server, cache, seed=1), server, "4?", "4?", "4?")
    assert answers == ["outage", "four", "four"]
    answers, _, _ = await played(agent_asking(server, cache, seed=2), server, "4?")
    assert answers == ["vier"]


async def test_the_answer_that_nobody_asked_for_longest_goes_first_and_none_outlives_its_time() -> None:
    clock = VirtualClock()
    cache = MemoryCache(2, ttl=60, clock=clock)
    for key in ("a", "b"):
        await cache.put(key, CachedAnswer(key, {}))
    assert await cache.get("a") is not None
    await cache.put("c", CachedAnswer("c", {}))
    assert [await cache.get(key) is not None for key in "abc"] == [True, False, True]
    clock.advance(60)
    assert [await cache.get(key) for key in "ac"] == [None, None]
    with pytest.raises(ConfigError, match="0 answers"):
        MemoryCache(0)
