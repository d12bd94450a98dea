"""Calls on a thread: what they return, what they raise, and that who is cancelled waits for their end."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from noesium_stream.log.kafka.thread_call import to_its_end
from tests.support.reading import PATIENCE_S


async def test_what_it_returns_and_what_it_raises() -> None:
    def refuses() -> None:
        raise ValueError("no")

    with ThreadPoolExecutor(1) as executor:
        assert await to_its_end(executor, lambda: 7) == 7
        with pytest.raises(ValueError, match="no"):
            await to_its_end(executor, refuses)


@pytest.mark.parametrize("fails", [False, True])
async def test_who_is_cancelled_says_so_and_waits_for_its_end(fails: bool) -> None:
    begun, may_end, told, said = threading.Event(), threading.Event(), asyncio.Event(), list[str]()

    def commit() -> None:
        begun.set()
        may_end.wait(PATIENCE_S)
        said.append("ended")
        if fails:
            raise ValueError("heard by nobody")

    with ThreadPoolExecutor(1) as executor:
        call = asyncio.create_task(to_its_end(executor, commit, told.set))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        call.cancel()
        await told.wait()
        call.cancel()  # and again
        for _ in range(5):  # turns of the loop, in which it would end
            await asyncio.sleep(0)
        assert not call.done()
        assert said == []
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert said == ["ended"]


async def test_who_is_cancelled_when_it_has_ended_waits_for_nothing() -> None:
    with ThreadPoolExecutor(1) as executor:
        loop = asyncio.get_running_loop()

        def cancel_when_told() -> None:
            executor.submit(lambda: None).result()  # the call has ended, and the loop looks at that next
            loop.call_soon(call.cancel)

        call = asyncio.create_task(to_its_end(executor, lambda: 7))
        loop.call_soon(cancel_when_told)  # behind the task's first step
        with pytest.raises(asyncio.CancelledError):  # and no timeout
            async with asyncio.timeout(PATIENCE_S):
                await call
