"""The server of models that the tests use speaks what the providers' own clients read."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from tests.support.model_server import (
    ModelServer,
    broken_json,
    calls,
    context_too_long,
    cut_off,
    model_server,
    outage,
    rate_limited,
    refusing,
    said,
)


def chat(server: ModelServer, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o-mini", base_url=server.openai, api_key="k", max_retries=0, **more)


async def test_openai_whole_and_in_pieces() -> None:
    with model_server([said("it is four")]) as server:
        whole = await chat(server).ainvoke("2 + 2?")
        pieces = [piece async for piece in chat(server, stream_usage=True).astream("say it again")]
    assert whole.text == "it is four"
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] == 3
    assert "".join(piece.text for piece in pieces) == "say it again"
    assert sum(piece.usage_metadata["total_tokens"] for piece in pieces if piece.usage_metadata) == 6
    assert server.requests[0][2]["messages"] == [{"role": "user", "content": "2 + 2?"}]


async def test_ollama_whole_and_tool_calls() -> None:
    with model_server([said("it is four"), calls(("add", {"a": 2}))]) as server:
        model = ChatOllama(model="llama3.2", base_url=server.url)
        answer, called = await model.ainvoke("2 + 2?"), await model.ainvoke("add")
    assert answer.text == "it is four"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 3
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [("add", {"a": 2})]


async def test_tool_calls_and_refusals() -> None:
    with model_server([calls(("add", {"a": 2})), refusing("no")]) as server:
        called = await chat(server).ainvoke("add")
        refused = await chat(server).ainvoke("steal")
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [("add", {"a": 2})]
    assert refused.additional_kwargs["refusal"] == "no"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (rate_limited(3), openai.RateLimitError),
        (context_too_long(), openai.BadRequestError),
        (outage(500), openai.InternalServerError),
        (broken_json(), Exception),
    ],
)
async def test_faults(answer: Any, error: type[Exception]) -> None:
    with model_server([answer]) as server:
        with pytest.raises(error) as raised:
            await chat(server).ainvoke("why")
        assert (await chat(server).ainvoke("well again")).text == "well again"
    if isinstance(raised.value, openai.RateLimitError):
        assert raised.value.response.headers["retry-after"] == "3"


async def test_an_answer_breaks_off_after_its_first_pieces() -> None:
    got: list[str] = []

    async def read() -> None:
        async for piece in chat(server).astream("why"):
            got.append(piece.text)

    with model_server([cut_off("one two three"), cut_off("one two three")]) as server:
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            await read()
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            await chat(server).ainvoke("why")
    assert "".join(got) == "one"


async def test_embeddings() -> None:
    with model_server() as server:
        own = OpenAIEmbeddings(base_url=server.openai, api_key="k", check_embedding_ctx_length=False)  # type: ignore[call-arg]
        other = OllamaEmbeddings(model="nomic", base_url=server.url)
        assert await own.aembed_documents(["a b", "abc"]) == [[3.0, 2.0], [3.0, 1.0]]
        assert await other.aembed_query("a b") == [3.0, 2.0]
