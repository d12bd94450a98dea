"""Turns, processes, restarts and escalation of sessions, without a process and with a clock moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from noesium_stream.errors import (
    SubagentAnswerError,
    SubagentBusyError,
    SubagentExitedError,
    SubagentStartError,
    SubagentStateError,
    SubagentTimeoutError,
)
from noesium_stream.kernel.retry import Retries
from noesium_stream.subagent.lifecycle import Answer, Request
from noesium_stream.subagent.sessions import FIRST, IDLE, NEEDED, STOPPED, Limits, Ready, Sessions
from tests.support.fake_subagent import FakeWorld
from tests.support.hand_clock import HandClock
from tests.support.reading import PATIENCE_S

DIED = SubagentExitedError("fake ended with status 5.")


class Stage:
    """Sessions over fake sub-agents, and calls of them."""

    def __init__(self, places: int = 2, waiting: int = 10, timeout_s: float = PATIENCE_S) -> None:
        self.world = FakeWorld()
        self.clock = HandClock()
        policy = Retries(max_attempts=3, initial_interval=1, max_interval=8, jitter=0)
        limits = Limits(places, waiting, timeout_s, idle_s=60)
        self.sessions = Sessions("fake", self.world.make, limits, policy, self.clock)
        self.found: dict[str, Ready] = {}

    def call(self, session: str, request_id: str) -> asyncio.Task[object]:
        async def calling() -> object:
            async with self.sessions.visit(session) as visit:
                self.found[request_id] = await visit.ready()
                if not self.found[request_id].ready:
                    return "ask"
                return await visit.ask(Request(request_id, "task", {}, {}))

        return asyncio.create_task(calling())

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0)

    async def answered(self, session: str, request_id: str) -> object:
        call = self.call(session, request_id)
        await self.until(lambda: request_id in self.world.busy())
        self.world.answer(request_id)
        return await call

    async def died(self, session: str, request_id: str) -> None:
        call = self.call(session, request_id)
        await self.until(lambda: request_id in self.world.busy())
        self.world.answer(request_id, DIED)
        with pytest.raises(SubagentExitedError):
            await call


async def test_a_session_s_calls_meet_one_process_and_another_session_has_its_own() -> None:
    stage = Stage()
    assert [await stage.answered("a", f"a{n}") for n in range(3)] == ["a0", "a1", "a2"]
    await stage.answered("b", "b0")
    assert [one.asked for one in stage.world.made] == [["a0", "a1", "a2"], ["b0"]]
    assert stage.found["a0"] == Ready(True, started=True, reason=FIRST)
    assert stage.found["a1"] == Ready(True)
    await stage.sessions.stop()
    assert stage.world.done == [STOPPED, STOPPED]


async def test_calls_queue_while_their_process_is_busy() -> None:
    stage = Stage()
    calls = [stage.call("a", f"a{n}") for n in range(3)]
    for n in range(3):
        await stage.until(lambda: stage.world.busy())
        assert stage.world.busy() == [f"a{n}"]
        stage.world.answer(f"a{n}")
        await calls[n]
    await stage.sessions.stop()


async def test_there_are_never_more_processes_than_places() -> None:
    stage = Stage(places=2)
    calls = {name: stage.call(name, name) for name in "abcd"}
    for name in "abcd":
        await stage.until(lambda name=name: name in stage.world.busy())
        stage.world.answer(name)
        assert await calls[name] == name
    assert stage.world.most == 2
    assert stage.world.done == [NEEDED, NEEDED]
    assert await stage.answered("a", "a2") == "a2"
    assert stage.found["a2"] == Ready(True, started=True, reason=NEEDED)
    await stage.sessions.stop()


async def test_one_call_more_than_may_wait_is_refused() -> None:
    stage = Stage(waiting=1)
    first, second = stage.call("a", "a1"), stage.call("a", "a2")
    await stage.until(lambda: stage.world.busy())
    with pytest.raises(SubagentBusyError, match="fake: 1 calls wait"):
        await stage.call("a", "a3")
    stage.world.answer("a1")
    await first
    await stage.until(lambda: stage.world.busy())
    stage.world.answer("a2")
    await second
    await stage.sessions.stop()


async def test_an_idle_process_ends_after_a_time() -> None:
    stage = Stage()
    await stage.answered("a", "a1")
    await stage.clock.move(59)
    await stage.answered("a", "a2")
    await stage.clock.move(59)
    assert len(stage.world.running) == 1
    stage.clock.advance(1)
    await stage.until(lambda: not stage.world.running)
    assert stage.world.done == [IDLE]
    await stage.answered("a", "a3")
    assert stage.found["a3"].started
    await stage.sessions.stop()


async def test_a_process_that_ended_while_it_was_idle_is_started_again_at_once() -> None:
    stage = Stage()
    await stage.answered("a", "a1")
    stage.world.made[0].sick = "ended with status 0"
    await stage.answered("a", "a2")
    assert stage.found["a2"] == Ready(True, started=True, reason="ended with status 0")
    await stage.sessions.stop()


async def test_an_error_of_the_program_is_the_call_s_and_its_process_goes_on() -> None:
    stage = Stage()
    call = stage.call("a", "a1")
    await stage.until(lambda: stage.world.busy())
    stage.world.answer("a1", Answer(error="no such thing"))
    with pytest.raises(SubagentAnswerError, match="fake: no such thing"):
        await call
    assert len(stage.world.running) == 1
    await stage.sessions.stop()


async def test_a_process_that_fails_is_started_again_after_growing_pauses() -> None:
    stage = Stage()
    await stage.died("a", "a1")
    call = stage.call("a", "a2")
    await stage.clock.move(0.5)
    assert stage.world.starts == 1
    stage.clock.advance(0.5)
    await stage.until(lambda: stage.world.busy())
    stage.world.answer("a2", DIED)
    with pytest.raises(SubagentExitedError):
        await call
    call = stage.call("a", "a3")
    await stage.clock.move(1.5)
    assert stage.world.starts == 2
    stage.clock.advance(0.5)
    await stage.until(lambda: stage.world.busy())
    stage.world.answer("a3")
    assert await call == "a3"
    assert stage.found["a3"] == Ready(True, started=True, reason=DIED.message)
    await stage.sessions.stop()


async def test_the_failures_of_a_session_do_not_slow_down_another() -> None:
    stage = Stage()
    await stage.died("a", "a1")
    assert await stage.answered("b", "b1") == "b1"
    await stage.sessions.stop()


async def asked_a_person(stage: Stage) -> None:
    stage.world.refuse_starts = 3
    call = stage.call("a", "a1")
    for starts in (1, 2):
        await stage.until(lambda starts=starts: stage.world.starts == starts)
        await stage.clock.move(starts)
    assert await call == "ask"
    assert stage.found["a1"] == Ready(False, reason="fake cannot be started.", failures=3)


async def test_a_program_that_cannot_be_started_is_tried_with_pauses_and_then_a_person_is_asked() -> None:
    stage = Stage()
    await asked_a_person(stage)
    assert stage.world.starts == 3
    with pytest.raises(SubagentStartError, match="failed 3 times in a row, and a person was asked"):
        await stage.call("a", "a2")
    await stage.sessions.stop()


async def test_a_person_who_agrees_has_it_started_at_once() -> None:
    stage = Stage()
    await asked_a_person(stage)
    async with stage.sessions.visit("a") as visit:
        visit.answered(True)
        assert (await visit.ready()).started
    await stage.sessions.stop()


async def test_after_a_refusal_the_next_call_tries_once_more_and_asks_again() -> None:
    stage = Stage()
    await asked_a_person(stage)
    async with stage.sessions.visit("a") as visit:
        visit.answered(False)
    stage.world.refuse_starts = 1
    call = stage.call("a", "a2")
    await stage.clock.move(8)
    assert await call == "ask"
    await stage.sessions.stop()


async def test_while_a_person_is_asked_a_try_that_works_ends_the_failure() -> None:
    stage = Stage()
    await asked_a_person(stage)
    stage.clock.advance(8)
    assert await stage.answered("a", "a2") == "a2"
    assert await stage.answered("a", "a3") == "a3"
    await stage.sessions.stop()


async def test_silence_is_an_error_of_the_call_and_the_process_is_killed() -> None:
    stage = Stage(timeout_s=0.01)
    with pytest.raises(SubagentTimeoutError, match=r"fake did not answer in 0\.01 s, and was killed"):
        await stage.call("a", "a1")
    assert stage.world.running == []
    await stage.sessions.stop()


async def test_a_call_that_is_cancelled_in_the_middle_kills_its_process_and_counts_no_failure() -> None:
    stage = Stage()
    call = stage.call("a", "a1")
    await stage.until(lambda: stage.world.busy())
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert stage.world.done == ["nobody waits for its answer any more"]
    assert await stage.answered("a", "a2") == "a2"  # without a pause
    await stage.sessions.stop()


async def test_a_call_that_is_cancelled_while_it_waits_keeps_nobody_from_a_turn() -> None:
    stage = Stage(places=1)
    first, second, third = (stage.call(name, name) for name in "abc")
    await stage.until(lambda: stage.world.busy())
    second.cancel()
    stage.world.answer("a")
    await first
    await stage.until(lambda: stage.world.busy() == ["c"])
    stage.world.answer("c")
    assert await third == "c"
    await stage.sessions.stop()


async def test_a_request_outlasts_the_visit_and_its_turn_ends_with_it() -> None:
    stage = Stage(places=1)
    async with stage.sessions.visit("a") as visit:
        await visit.ready()
        asking = asyncio.create_task(visit.ask(Request("a1", "task", {}, {})))
        await stage.until(lambda: stage.world.busy())
    other = stage.call("b", "b1")
    await asyncio.sleep(0)
    assert stage.world.busy() == ["a1"]
    stage.world.answer("a1")
    assert await asking == "a1"
    await stage.until(lambda: stage.world.busy() == ["b1"])
    stage.world.answer("b1")
    assert await other == "b1"
    await stage.sessions.stop()


async def test_a_request_that_begins_when_the_visit_is_over_takes_a_turn_of_its_own() -> None:
    stage = Stage(places=1)
    async with stage.sessions.visit("a") as visit:
        await visit.ready()
    asking = asyncio.create_task(visit.ask(Request("a1", "task", {}, {})))
    await stage.until(lambda: stage.world.busy())
    stage.world.answer("a1")
    assert await asking == "a1"
    await stage.sessions.stop()


async def test_the_end_of_the_worker_leaves_the_outcome_of_an_open_request_unknown() -> None:
    stage = Stage()
    call, waiting = stage.call("a", "a1"), stage.call("a", "a2")
    await stage.until(lambda: stage.world.busy())
    await stage.sessions.stop()
    for task in (call, waiting):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert stage.world.running == []
    with pytest.raises(SubagentStateError, match="takes no calls any more: the worker ends"):
        await stage.call("a", "a3")
