"""A call is begun where it is known whose the run is, also by a thread that had to wait for its turn."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from noesium_stream.errors import FencedError
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.step.effect_call import in_thread, make_assured
from tests.support.reading import PATIENCE_S


class Ownership:
    """What is known is out of date when a thread begins, but for that which `until` questions have found."""

    def __init__(self, *, until: int, lost: bool = False) -> None:
        self.activity = Activity()
        self.activity.assured, self.activity.owned = self.assured, self.owned
        self.asked = 0
        self._until = until
        self._lost = lost

    async def assured(self) -> None:
        self.asked += 1
        if self._lost and self.asked > 1:
            raise FencedError("another has it")

    def owned(self) -> bool:
        return self.asked >= self._until


@pytest.mark.parametrize("waits", [0, 1, 3])
async def test_a_thread_that_waited_for_its_turn_calls_once_it_is_known_again(waits: int) -> None:
    calls: list[int] = []
    run = Ownership(until=waits + 1)
    call = partial(in_thread, partial(calls.append, 1), run.activity)
    ended = await asyncio.wait_for(make_assured(call, None, run.activity), PATIENCE_S)
    assert ended.raised is None
    assert ended.made
    assert calls == [1]
    assert run.asked == waits + 1


async def test_a_thread_whose_run_is_another_ones_by_now_calls_nothing() -> None:
    calls: list[int] = []
    run = Ownership(until=9, lost=True)
    call = partial(in_thread, partial(calls.append, 1), run.activity)
    ended = await asyncio.wait_for(make_assured(call, None, run.activity), PATIENCE_S)
    assert isinstance(ended.raised, FencedError)
    assert not ended.made
    assert not calls
