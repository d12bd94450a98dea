"""Tokens and nodes as a program sees them in its own process."""

from __future__ import annotations

import logging
import threading
from typing import Any, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph

from noesium_stream import JournaledLLM, NodeLoggingCallback, OpenAILLM, TokenUsageCallback, TokenUsageTracker
from noesium_stream.agent import agent_from_graph
from noesium_stream.llm.usage import Usage
from noesium_stream.testing import Rehearsal
from tests.support.model_server import ModelServer, lying, model_server, said


class State(TypedDict, total=False):
    text: str


def graph_of(node: Any) -> StateGraph[Any, Any, Any, Any]:
    return StateGraph(State).add_node("ask", node).add_edge(START, "ask")


def test_a_tracker_sums_by_model_from_any_thread_and_begins_again() -> None:
    tracker = TokenUsageTracker()

    def add() -> None:
        for _ in range(500):
            tracker.add("a", Usage(2, 1, 1))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracker.add("b", Usage(5, 5, None, estimated=True))
    assert tracker.by_model == {"a": Usage(4_000, 2_000, 2_000), "b": Usage(5, 5, 0, estimated=True)}
    assert tracker.calls == {"a": 2_000, "b": 1}
    assert tracker.total == 6_010
    tracker.reset()
    assert (tracker.by_model, tracker.calls, tracker.total) == ({}, {}, 0)


async def test_a_journaled_model_adds_the_calls_that_it_makes_and_none_that_it_reads() -> None:
    tracker = TokenUsageTracker()
    with model_server([said("one two"), said("three")]) as server:
        llm = JournaledLLM(openai(server), tracker=tracker)

        async def ask(state: State) -> State:
            return {"text": await llm.complete("why") + await llm.complete("how")}

        async with Rehearsal(agent_from_graph(graph_of(ask), "asker")) as rehearsal:
            rehearsal.crash_after("effect.completed", 2)  # then the node runs again
            run = await rehearsal.start({})
            await run.result()
    assert len(server.requests) == 2
    assert tracker.calls == {"openai:gpt-4o-mini": 2}


def openai(server: ModelServer) -> OpenAILLM:
    return OpenAILLM("openai:gpt-4o-mini", base_url=server.openai, api_key="k")


async def test_the_callback_counts_calls_of_langchain_in_a_plain_graph() -> None:
    tracker = TokenUsageTracker()
    lie = {"prompt_tokens": 7, "completion_tokens": -3, "total_tokens": 4}
    with model_server([said("one two"), lying("three", lie)]) as server:
        llm = openai(server)
        chat = await llm._chats.get()

        async def ask(state: State) -> State:
            first = await chat.ainvoke("why")
            return {"text": first.text + (await chat.ainvoke("how")).text}

        await graph_of(ask).compile().ainvoke({}, {"callbacks": [TokenUsageCallback(tracker)]})
    assert tracker.calls == {"gpt-4o-mini": 2}
    assert tracker.by_model["gpt-4o-mini"] == Usage(8, 2, 0)  # a number that cannot be true counts nothing


async def test_an_answer_without_tokens_counts_nothing() -> None:
    tracker = TokenUsageTracker()
    chat = GenericFakeChatModel(messages=iter([AIMessage("hi")]))
    await chat.ainvoke("why", {"callbacks": [TokenUsageCallback(tracker)]})
    assert tracker.calls == {}


async def test_nodes_are_logged_by_begin_end_and_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def ask(state: State) -> State:
        if state["text"] == "fail":
            raise ValueError("a secret")
        return {"text": "done"}

    graph, callback = graph_of(ask).compile(), NodeLoggingCallback()
    with caplog.at_level(logging.INFO, logger="noesium_stream.nodes"):
        await graph.ainvoke({"text": "go"}, {"callbacks": [callback]})
        with pytest.raises(ValueError, match="a secret"):
            await graph.ainvoke({"text": "fail"}, {"callbacks": [callback]})
    said = [(record.levelname, record.getMessage().rsplit(" after ")[0]) for record in caplog.records]
    assert said == [
        ("INFO", "node ask begins"),
        ("INFO", "node ask ended"),
        ("INFO", "node ask begins"),
        ("WARNING", "node ask failed"),
    ]
    assert caplog.records[-1].getMessage().endswith(" ms: ValueError")  # its words may be anything
    assert not callback._begun
