"""Calls whose answers are read in pieces: the result is what counts, whatever comes of the pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy

from noesium_stream import Piece, SideEffectClass, agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.errors import CapabilityError
from noesium_stream.event.standard import Capability
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from noesium_stream.worker.pieces import arrivals
from tests.support.reading import PATIENCE_S, eventually
from tests.support.replays import journal_of, verify
from tests.support.teller import Teller

_OBJECT = {"type": "object"}


class State(TypedDict, total=False):
    words: list[Any]
    text: str
    seen: list[Any]


def asking(node: Any, **options: Any) -> StateGraph[Any, Any, Any, Any]:
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    graph.add_node("ask", node, **options)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return graph


@asynccontextmanager
async def at_work(home: Path, node: Any, *providers: Any, **options: Any) -> AsyncIterator[Client]:
    log = await open_log("memory://")
    try:
        agents = [*(providers or [Teller]), agent_from_graph(asking(node, **options))]
        async with Worker(log, agents, home=home), Client(log) as client:
            yield client
    finally:
        await log.close()


async def result(client: Client, *words: Any) -> Any:
    run = await client.start("sample", {"words": list(words)})
    return await run.result(timeout=PATIENCE_S)


async def data(run: Run) -> list[Any]:
    async with asyncio.timeout(PATIENCE_S), aclosing(run.pieces()) as pieces:
        return [piece.data async for piece in pieces]


def told(words: list[Any]) -> Any:
    return current_step().invoke_stream("text.tell", {"words": words})


async def test_a_node_may_keep_the_result_without_reading_any_piece(tmp_path: Path) -> None:
    async def ask(state: State) -> State:
        return {"text": (await told(state["words"]).result())["text"]}

    async with at_work(tmp_path, ask) as client:
        assert (await result(client, "a", "b"))["text"] == "ab"


async def test_a_node_may_stop_reading_and_still_get_the_result(tmp_path: Path) -> None:
    async def ask(state: State) -> State:
        answer = told(state["words"])
        async for piece in answer:
            first = piece.data
            break
        return {"text": (await answer.result())["text"], "seen": [first]}

    async with at_work(tmp_path, ask) as client:
        found = await result(client, "a", "b")
    assert (found["text"], found["seen"]) == ("ab", ["a"])


async def test_an_answer_that_is_never_used_calls_nobody(tmp_path: Path) -> None:
    async def ask(state: State) -> State:
        told(state["words"])
        return {"text": "mine"}

    async with at_work(tmp_path, ask) as client:
        run = await client.start("sample", {"words": ["a"]})
        assert (await run.result(timeout=PATIENCE_S))["text"] == "mine"
        assert "capability.invoked" not in {event.event_type async for event in run.events()}


class Failing(Teller):
    """Writes a piece and fails."""

    agent_type = "failing"
    failures = 1

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        async def fail(state: Any) -> Any:
            await current_step().write("half")
            raise ValueError("out of words")

        return asking(fail)


async def test_a_provider_that_fails_ends_the_pieces_and_the_result_raises(tmp_path: Path) -> None:
    async def ask(state: State) -> State:
        answer = told(state["words"])
        seen = [piece.data async for piece in answer]
        try:
            await answer.result()
        except CapabilityError as error:
            return {"text": error.message, "seen": seen}
        return {}

    async with at_work(tmp_path, ask, Failing) as client:
        found = await result(client, "a")
    assert "out of words" in found["text"]
    assert found["seen"] == ["half"]


class First(Failing):
    """The provider that is tried first; a second call does no harm."""

    agent_type = "first"
    capabilities = (
        Capability(
            id="text.tell",
            input_schema=_OBJECT,
            output_schema=_OBJECT,
            side_effects=SideEffectClass.PURE,
            priority=9,
        ),
    )


async def test_the_next_provider_begins_with_a_restart(tmp_path: Path) -> None:
    seen: list[Piece] = []

    async def ask(state: State) -> State:
        answer = told(state["words"])
        async for piece in answer:
            seen.append(piece)
        return {"text": (await answer.result())["text"]}

    async with at_work(tmp_path, ask, First, Teller) as client:
        assert (await result(client, "a", "b"))["text"] == "ab"
    assert [(piece.data, piece.restarted) for piece in seen] == [("half", False), ("a", True), ("b", False)]


async def test_a_node_that_fails_while_it_reads_leaves_nothing_behind(tmp_path: Path) -> None:
    tries: list[int] = []

    async def ask(state: State) -> State:
        answer = told(state["words"])
        tries.append(1)
        async for _ in answer:
            if len(tries) == 1:
                raise OSError("no room")
        return {"text": (await answer.result())["text"]}

    policy = RetryPolicy(initial_interval=0.001, jitter=False, retry_on=OSError)
    async with at_work(tmp_path, ask, retry_policy=policy) as client:
        assert (await result(client, "a", "b"))["text"] == "ab"
        names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]
        assert not [name for name in names if "Piecewise" in name or "Listener" in name]


async def test_a_replay_has_no_pieces_and_the_same_result(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def ask(state: State) -> State:
        answer = told(state["words"])
        async for piece in answer:
            seen.append(piece.data)
        return {"text": (await answer.result())["text"]}

    async with at_work(tmp_path, ask) as client:
        run = await client.start("sample", {"words": ["a", "b"]})
        await run.result(timeout=PATIENCE_S)
        assert seen == ["a", "b"]
        verdict = await verify(asking(ask), await journal_of(run))
    assert verdict.difference is None
    assert seen == ["a", "b"]


async def test_a_node_that_reads_too_slowly_loses_pieces_and_not_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "MOST_WAITING", 3)
    seen: list[Piece] = []

    async def ask(state: State) -> State:
        answer = told(state["words"])
        async for piece in answer:
            seen.append(piece)
            await answer.result()  # the provider has written all of them by then
        return {"text": (await answer.result())["text"]}

    async with at_work(tmp_path, ask) as client:
        assert len((await result(client, *range(9)))["text"]) == 9
    assert len(seen) < 9
    assert [piece.data for piece in seen] == sorted(piece.data for piece in seen)


async def test_the_topic_is_read_while_somebody_listens_and_a_little_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "LINGER_S", 0.0)

    async def ask(state: State) -> State:
        answer = told(state["words"])
        seen = [piece.data async for piece in answer]
        return {"text": (await answer.result())["text"], "seen": seen}

    async with at_work(tmp_path, ask) as client:
        for _ in range(2):
            assert (await result(client, "a", "b"))["seen"] == ["a", "b"]
            await eventually(lambda: not _readers())


def _readers() -> list[Any]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "noesium arriving pieces"]
