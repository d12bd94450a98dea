"""Random plays of a sub-agent's sessions: calls, answers, faults, cancellations, time, and the end."""

from __future__ import annotations

import asyncio
import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from noesium_stream.errors import SubagentError, SubagentExitedError
from noesium_stream.kernel.retry import Retries
from noesium_stream.subagent.lifecycle import Answer, Request, State
from noesium_stream.subagent.sessions import Limits, Sessions
from tests.support.fake_subagent import FakeWorld
from tests.support.hand_clock import HandClock
from tests.support.reading import PATIENCE_S

MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            ["call", "call", "answer", "answer", "error", "die", "cancel", "unstartable", "sick", "time"]
        ),
        st.integers(0, 7),
    ),
    max_size=60,
)
TURNS = 30


class Play:
    """Sessions over fake sub-agents; every call notes how it ended."""

    def __init__(self, places: int, waiting: int) -> None:
        self.world = FakeWorld()
        self.clock = HandClock()
        policy = Retries(max_attempts=3, initial_interval=1, max_interval=4, jitter=0)
        limits = Limits(places, waiting, timeout_s=1_000, idle_s=30)
        self.sessions = Sessions("fake", self.world.make, limits, policy, self.clock)
        self.places = places
        self.calls: list[asyncio.Task[str]] = []

    async def call(self, session: str, request_id: str) -> str:
        try:
            async with self.sessions.visit(session) as visit:
                if not (await visit.ready()).ready:
                    visit.answered(request_id[-1] in "02468")
                    return "asked a person"
                return str(await visit.ask(Request(request_id, "task", {}, {})))
        except SubagentError as error:
            return type(error).__name__

    def busy(self, number: int) -> str | None:
        busy = sorted(self.world.busy())
        return busy[number % len(busy)] if busy else None

    def move(self, what: str, number: int) -> None:
        if what == "call":
            request_id = f"r{len(self.calls)}"
            self.calls.append(asyncio.create_task(self.call(f"s{number % 4}", request_id)))
        elif what == "cancel" and self.calls:
            self.calls[number % len(self.calls)].cancel()
        elif what == "unstartable":
            self.world.refuse_starts = number
        elif what == "sick":
            for one in self.world.made[-3:]:
                one.sick = "ended by itself"
        elif what == "time":
            self.clock.advance(2.0 ** (number - 1))
        elif (asked := self.busy(number)) is not None:
            outcomes = {"answer": None, "error": Answer(error="no"), "die": SubagentExitedError("died")}
            self.world.answer(asked, outcomes[what])

    def check(self) -> None:
        assert len(self.world.running) <= self.places
        asked = [request for one in self.world.made for request in one.asked]
        assert len(asked) == len(set(asked)), "no request reaches a process twice"

    async def settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
            self.check()

    async def finish(self) -> None:
        """Answer all that is asked: then every call ends."""
        self.world.refuse_starts = 0
        for _ in range(400):
            if all(call.done() for call in self.calls):
                return
            for request_id in self.world.busy():
                with contextlib.suppress(asyncio.InvalidStateError):
                    self.world.answer(request_id)
            self.clock.advance(1)
            await self.settle()
        raise AssertionError("a call waits for ever")


async def played(moves: list[tuple[str, int]], places: int, waiting: int, *, stops: bool) -> None:
    play = Play(places, waiting)
    for what, number in moves:
        with contextlib.suppress(asyncio.InvalidStateError):  # it has its outcome already
            play.move(what, number)
        await play.settle()
    if not stops:
        await play.finish()
        ends = [call.result() for call in play.calls if not call.cancelled()]
        answered = {end for end in ends if end.startswith("r")}
        assert answered <= {request for one in play.world.made for request in one.asked}
    async with asyncio.timeout(PATIENCE_S):
        await play.sessions.stop()
        for call in play.calls:
            call.cancel()  # as a worker does with its runs; one may be in a pause
        await asyncio.gather(*play.calls, return_exceptions=True)
    await play.settle()  # a task that was told to end needs a turn for it
    assert play.world.running == []
    assert all(one.life.state in (State.CREATED, State.TERMINATED) for one in play.world.made)
    assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set()


@settings(deadline=None, max_examples=150)
@given(MOVES, st.integers(1, 3), st.integers(1, 6), st.booleans())
def test_every_call_ends_processes_are_bounded_and_nothing_is_left(
    moves: list[tuple[str, int]], places: int, waiting: int, stops: bool
) -> None:
    asyncio.run(played(moves, places, waiting, stops=stops))
