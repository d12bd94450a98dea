"""Each client against a server that is slow, broken, rate limited, cut off, or lies about tokens."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from noesium_stream.errors import (
    ModelAccessError,
    ModelAnswerError,
    ModelContextError,
    ModelError,
    ModelOutageError,
    ModelRateLimitError,
    ModelTimeoutError,
)
from noesium_stream.llm import LiteLLM
from tests.support.model_clients import CLIENTS, client_of
from tests.support.model_server import (
    ModelServer,
    Scripted,
    broken_json,
    calls,
    context_too_long,
    cut_off,
    held,
    lying,
    model_server,
    outage,
    rate_limited,
    said,
)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as found:
        yield found


async def text_of(client: Any, *, pieces: bool = False) -> dict[str, Any]:
    got: list[str] = []

    async def write(piece: str) -> None:
        got.append(piece)

    answer: dict[str, Any] = await client.generate("what is it?", **({"write": write} if pieces else {}))
    assert not pieces or "".join(got) == answer["text"]
    return answer


@pytest.mark.parametrize("provider", CLIENTS)
@pytest.mark.parametrize("pieces", [False, True])
async def test_an_answer_with_its_tokens(provider: str, pieces: bool, server: ModelServer) -> None:
    server.script(said("it is four"))
    answer = await text_of(client_of(provider, server), pieces=pieces)
    assert answer["text"] == "it is four"
    assert answer["usage"]["output_tokens"] == 3
    assert not answer["usage"]["estimated"]


@pytest.mark.parametrize("provider", CLIENTS)
async def test_a_tool_call(provider: str, server: ModelServer) -> None:
    server.script(calls(("weather", {"city": "Ulm"})))
    tool = {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    answer = await client_of(provider, server).generate("and in Ulm?", tools=[tool])
    (call,) = answer["tool_calls"]
    assert (call["name"], call["arguments"]) == ("weather", {"city": "Ulm"})


@pytest.mark.parametrize("provider", CLIENTS)
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (rate_limited(2), ModelRateLimitError),
        (outage(503), ModelOutageError),
        (Scripted("no such key", status=401), ModelAccessError),
        (context_too_long(), ModelContextError),
        (broken_json(), ModelAnswerError),
        (cut_off("a long answer of many words"), ModelAnswerError),
    ],
    ids=["rate limit", "outage", "key", "context", "no JSON", "cut off"],
)
async def test_a_fault_has_its_class(
    provider: str, answer: Scripted, error: type[ModelError], server: ModelServer
) -> None:
    server.script(answer)
    client = client_of(provider, server)
    with pytest.raises(error):
        await text_of(client)
    assert len(server.requests) == 1, "a client repeats nothing by itself: each repetition is on the log"
    server.script(said("well again"))
    assert (await text_of(client))["text"] == "well again"


@pytest.mark.parametrize("provider", CLIENTS)
async def test_pieces_that_break_off_are_no_answer(provider: str, server: ModelServer) -> None:
    server.script(cut_off("one two three four"))
    with pytest.raises(ModelAnswerError):
        await text_of(client_of(provider, server), pieces=True)


@pytest.mark.parametrize("provider", CLIENTS)
async def test_a_server_that_is_too_slow(provider: str, server: ModelServer) -> None:
    late = held("late")
    server.script(late)
    try:
        with pytest.raises(ModelTimeoutError):
            await text_of(client_of(provider, server, timeout=0.2))
    finally:
        assert late.release is not None
        late.release.set()


@pytest.mark.parametrize("provider", CLIENTS)
async def test_a_server_that_lies_about_tokens(provider: str, server: ModelServer) -> None:
    if provider == "ollama":
        server.script(lying("it is four", {"prompt_eval_count": 10**9, "eval_count": 3}))
    else:
        claimed = {"prompt_tokens": 10**9, "completion_tokens": 3, "total_tokens": 10**9 + 3}
        server.script(lying("it is four", claimed))
    usage = (await text_of(client_of(provider, server)))["usage"]
    assert usage["estimated"]
    assert 0 < usage["input_tokens"] < 100


def test_litellm_asks_nobody_for_prices_when_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITELLM_LOCAL_MODEL_COST_MAP", raising=False)
    LiteLLM("litellm:openai/gpt-4o-mini", api_key="k")
    litellm = importlib.import_module("litellm")
    assert litellm.litellm_core_utils.get_model_cost_map.get_model_cost_map_source_info()["source"] == "local"
