"""Who asks the same at the same time shares a request; its answer is remembered, and its error is not."""

from __future__ import annotations

import asyncio

from noesium_stream.client.shared.answers import SharedAnswers
from noesium_stream.clock import VirtualClock


class Source:
    def __init__(self) -> None:
        self.asked = 0
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def ask(self) -> int:
        self.asked += 1
        return await self.answer


async def test_one_request_serves_all_who_ask_and_is_remembered_for_its_time() -> None:
    source, clock = Source(), VirtualClock()
    answers = SharedAnswers[int](clock.monotonic, 5.0)
    asking = [asyncio.create_task(answers.get("a", source.ask)) for _ in range(20)]
    await asyncio.sleep(0)
    asking[0].cancel()  # it was the first, and the others get their answer
    source.answer.set_result(7)
    assert await asyncio.gather(*asking[1:]) == [7] * 19
    assert await answers.get("a", source.ask) == 7
    assert source.asked == 1
    clock.advance(5)
    assert await answers.get("a", source.ask) == 7
    answers.forget("a")
    await answers.get("a", source.ask)
    assert source.asked == 3


async def test_an_error_is_told_to_all_and_remembered_by_nobody() -> None:
    source = Source()
    answers = SharedAnswers[int](VirtualClock().monotonic, 5.0)
    asking = [asyncio.create_task(answers.get("a", source.ask)) for _ in range(3)]
    await asyncio.sleep(0)
    source.answer.set_exception(OSError("away"))
    assert [type(one) for one in await asyncio.gather(*asking, return_exceptions=True)] == [OSError] * 3
    source.answer = asyncio.get_running_loop().create_future()
    source.answer.set_result(1)
    assert await answers.get("a", source.ask) == 1


async def test_an_answer_to_what_was_forgotten_meanwhile_is_not_remembered() -> None:
    source = Source()
    answers = SharedAnswers[int](VirtualClock().monotonic, 5.0)
    old = asyncio.create_task(answers.get("a", source.ask))
    await asyncio.sleep(0)
    answers.forget("a")
    source.answer.set_result(1)
    assert await old == 1
    fresh = Source()
    fresh.answer.set_result(2)
    assert await answers.get("a", fresh.ask) == 2
