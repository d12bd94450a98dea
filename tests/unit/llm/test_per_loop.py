"""One client per event loop: made once, closed on its own loop, at its end or when nobody has it."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from noesium_stream.llm import OpenAILLM
from noesium_stream.llm.langchain import unshared
from noesium_stream.llm.per_loop import PerLoop


class Made:
    """Makes clients; where each was made and closed is noted."""

    def __init__(self) -> None:
        self.made: list[object] = []
        self.closed: dict[object, asyncio.AbstractEventLoop] = {}

    def make(self) -> object:
        self.made.append(object())
        return self.made[-1]

    async def close(self, client: object) -> None:
        await asyncio.sleep(0)
        self.closed[client] = asyncio.get_running_loop()


def test_it_is_made_once_in_a_loop_and_closed_on_it() -> None:
    made = Made()
    clients = PerLoop(made.make, made.close)

    async def ask() -> tuple[asyncio.AbstractEventLoop, set[object]]:
        found = await asyncio.gather(*(clients.get() for _ in range(5)))
        assert made.closed.keys().isdisjoint(found)
        return asyncio.get_running_loop(), set(found)

    for number in (1, 2):
        loop, found = asyncio.run(ask())
        assert found == {made.made[-1]}
        assert len(made.made) == number
        assert made.closed[made.made[-1]] is loop
    assert not clients._clients


def test_a_client_that_was_made_before_is_of_the_first_loop() -> None:
    made = Made()
    clients = PerLoop(made.make, made.close, first := object())
    assert asyncio.run(clients.get()) is first
    assert asyncio.run(clients.get()) is made.made[0]


async def test_it_is_closed_when_nobody_has_it_any_more() -> None:
    made, closed = Made(), asyncio.Event()

    async def close(client: object) -> None:
        closed.set()

    await PerLoop(made.make, close).get()
    gc.collect()
    await asyncio.wait_for(closed.wait(), 30)


def test_a_loop_that_was_closed_at_once_is_forgotten() -> None:
    made = Made()
    clients = PerLoop(made.make, made.close)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(clients.get())
    loop.close()
    asyncio.run(clients.get())
    assert len(made.made) == 2
    assert not clients._clients


@pytest.mark.parametrize("given", [{}, {"timeout": None}, {"timeout": 2.5}, {"request_timeout": (1, 2)}])
async def test_a_time_limit_is_the_same_on_connections_of_ones_own(given: dict[str, Any]) -> None:
    chat = await OpenAILLM("openai:gpt-4o-mini", api_key="k", **given)._chats.get()
    ((name, made),) = [(name, one) for name, one in unshared(given).items() if one is not None]
    assert name == next(iter(given), "timeout")
    assert chat.request_timeout == made
    limit = next(iter(given.values()), None)
    expected = limit if isinstance(limit, tuple) else (limit, limit)
    assert (made.connect, made.read) == expected


def test_a_time_limit_that_is_shared_by_nobody_is_left_as_it_is() -> None:
    given = unshared({"timeout": 3})
    assert unshared(given) == given
