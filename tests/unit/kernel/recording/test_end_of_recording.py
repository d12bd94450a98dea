"""A body that goes on by itself, in real time, beside a call of which nothing came is as recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.kernel import current_step, kernel_node
from noesium_stream.kernel.recording import end_of_recording as waiting
from tests.support.replays import Graph, recorded, verify

A_WHILE_S = 0.08
"""Longer than the turns of the event loop after which a replay takes a step for quiet."""


class State(TypedDict, total=False):
    value: Any


async def hang() -> None:
    await asyncio.Event().wait()


async def fine() -> int:
    return 7


def graph(node: Callable[..., Any]) -> Graph:
    built = StateGraph(State)
    built.add_node("a", node)
    built.add_edge(START, "a")
    return built


async def _fails_later(state: State) -> None:
    async def end() -> None:
        await asyncio.sleep(A_WHILE_S)
        await current_step().effect("fine", fine)
        raise LookupError("told to fail")

    await asyncio.gather(current_step().effect("hang", hang), end())


async def _fails_beside_a_task(state: State) -> None:
    task = asyncio.create_task(current_step().effect("hang", hang))
    await asyncio.sleep(A_WHILE_S)
    assert not task.done()
    raise LookupError("told to fail")


async def _gives_up(state: State) -> dict[str, Any]:
    try:
        async with asyncio.timeout(A_WHILE_S):
            await current_step().effect("hang", hang)
    except TimeoutError:
        return {"value": "gave up"}
    return {}


@kernel_node(timeout=timedelta(seconds=A_WHILE_S))
async def _runs_out_of_time(state: State) -> None:
    await current_step().effect("hang", hang)


async def _leaves_a_task(state: State) -> dict[str, Any]:
    task = asyncio.create_task(current_step().effect("hang", hang))
    await asyncio.sleep(A_WHILE_S)
    return {"value": task.done()}


@pytest.mark.parametrize(
    "node", [_fails_later, _fails_beside_a_task, _gives_up, _runs_out_of_time, _leaves_a_task]
)
async def test_what_a_body_does_in_real_time_beside_a_hanging_effect_is_waited_for(
    node: Callable[..., Any], tmp_path: Path
) -> None:
    run = await recorded(graph(node), tmp_path)
    verdict = await verify(graph(node), run)
    assert verdict.difference is None, str(verdict.difference)
    assert verdict.steps == 1


async def test_an_open_run_is_replayed_up_to_the_last_of_its_gathered_calls(tmp_path: Path) -> None:
    async def later() -> None:
        await asyncio.sleep(A_WHILE_S)
        await current_step().effect("fine", fine)
        await current_step().signal("never")

    async def node(state: State) -> None:
        await asyncio.gather(current_step().effect("hang", hang), later())

    run = await recorded(graph(node), tmp_path, until="effect.completed")
    verdict = await verify(graph(node), run)
    assert verdict.difference is None, str(verdict.difference)


async def test_code_that_waits_for_good_now_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waits(state: State) -> dict[str, Any]:
        await asyncio.create_task(current_step().effect("hang", hang))
        return {"value": False}

    run = await recorded(graph(_leaves_a_task), tmp_path)
    monkeypatch.setattr(waiting, "SPARE_S", 0.0)
    difference = (await verify(graph(waits), run)).difference
    assert difference is not None
    assert (difference.node, difference.what, difference.recorded) == ("a", "it does not go on", "completed")
