"""Clients in several event loops: no connection is used by another loop, and none is left open."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from noesium_stream.llm import LangChainLLM, OpenAILLM
from tests.support.model_clients import CLIENTS, client_of
from tests.support.model_server import ModelServer, model_server
from tests.support.reading import PATIENCE_S, eventually


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as found:
        yield found


def any_client(provider: str, server: ModelServer) -> Any:
    if provider == "any of langchain":
        return LangChainLLM("openai:gpt-4o-mini", base_url=server.openai, api_key="k")
    return client_of(provider, server)


async def asked(client: Any, *, pieces: bool = False) -> set[str]:
    """The texts of calls at the same time, each on a connection of its own."""

    async def write(piece: str) -> None:
        """Take a piece."""

    more = {"write": write} if pieces else {}
    return {one["text"] for one in await asyncio.gather(*(client.generate("why", **more) for _ in range(3)))}


@pytest.mark.parametrize("provider", [*CLIENTS, "any of langchain"])
@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("same", [True, False])
def test_a_model_is_asked_in_one_event_loop_after_another(
    provider: str, pieces: bool, same: bool, server: ModelServer
) -> None:
    client = any_client(provider, server)
    for _ in range(3):
        now = client if same else any_client(provider, server)
        assert asyncio.run(asked(now, pieces=pieces)) == {"why"}


@pytest.mark.parametrize("provider", CLIENTS)
def test_vectors_are_made_in_one_event_loop_after_another(provider: str, server: ModelServer) -> None:
    client = client_of(provider, server)
    for _ in range(3):
        assert asyncio.run(client.embed(["a b", "c"]))["vectors"] == [[3.0, 2.0], [1.0, 1.0]]


def test_one_client_is_used_by_two_threads_at_the_same_time(server: ModelServer) -> None:
    client, meeting = client_of("openai", server), threading.Barrier(2)

    def ask() -> set[str]:
        async def twice() -> set[str]:
            first = await asked(client)
            await asyncio.to_thread(meeting.wait, PATIENCE_S)  # both have connections now
            return first | await asked(client)

        return asyncio.run(twice())

    with ThreadPoolExecutor(2) as threads:
        assert [one.result(PATIENCE_S) for one in [threads.submit(ask), threads.submit(ask)]] == [{"why"}] * 2


@pytest.mark.parametrize("provider", [one for one in CLIENTS if one != "litellm"])  # it has a cache by loop
def test_no_connection_outlives_its_event_loop(provider: str, server: ModelServer) -> None:
    client = client_of(provider, server)
    gc.collect()  # what others have left
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(asked(client))
        asyncio.run(client.embed(["a"]))
        asyncio.run(eventually(lambda: server.open == 0))
        del client
        gc.collect()
    assert server.most_open == 3
    assert [str(one.message) for one in seen if "unclosed" in str(one.message)] == []


async def test_a_client_that_nobody_has_any_more_closes_its_connections(server: ModelServer) -> None:
    await asked(client_of("openai", server))
    gc.collect()
    await eventually(lambda: server.open == 0)


def test_an_http_client_of_the_user_is_not_closed(server: ModelServer) -> None:
    async def main() -> None:
        async with openai.DefaultAsyncHttpxClient() as own:
            given = {"base_url": server.openai, "api_key": "k", "http_async_client": own}
            for _ in range(2):
                await asked(OpenAILLM("openai:gpt-4o-mini", **given))
                gc.collect()
                await asyncio.sleep(0)

    asyncio.run(main())
