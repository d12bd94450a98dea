"""A signal that was sent again counts once: by its event id, or by its sender's idempotency key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.errors import CommitUnknownError
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import RunSignalled
from noesium_stream.kernel import RunHistory, current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S

ANN, BOB = AgentRef("ann", "client"), AgentRef("bob", "client")


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


def worker(log: EventLog, home: Path) -> Worker:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        words: list[str] = []
        while not words or words[-1] != "end":
            words.append(await step.signal("word"))
        return {"words": words}

    graph = StateGraph(dict)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return Worker(log, [agent_from_graph(graph)], home=home)


def said(run_id: str, word: str, sender: AgentRef = ANN, key: str | None = None) -> EventEnvelope:
    return RunSignalled(run_id=run_id, name="word", value=word).to_envelope(
        sender,
        TraceContext("1" * 32, "2" * 16),
        partition_key=run_id,
        idempotency_key=key,
        metadata={"to": "sample"},
    )


async def words(run: Run) -> list[str]:
    found: list[str] = (await run.result(timeout=PATIENCE_S))["words"]
    return found


async def heard(run: Run, count: int) -> None:
    async for event in run.events():
        count -= event.event_type == RunSignalled.TYPE
        if not count:
            return


@pytest.mark.parametrize("apart", [False, True])
async def test_the_same_signal_counts_once_in_one_batch_and_after_a_takeover(
    log: EventLog, tmp_path: Path, apart: bool
) -> None:
    async with Client(log) as client:
        run = await client.start("sample", {})
        one = said(run.id, "one")
        await log.append([one])
        if apart:
            async with worker(log, tmp_path / "first"):
                await heard(run, 1)
        await log.append([one])
        await log.append([said(run.id, "end")])
        async with worker(log, tmp_path / "second"):
            assert await words(run) == ["one", "end"]
        kept = [e.event_id async for e in run.events(follow=False) if e.event_type == RunSignalled.TYPE]
        assert kept.count(one.event_id) == 1


async def test_a_key_counts_once_for_each_sender_and_calls_without_a_key_count_each(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log, agent_id="ann") as ann, Client(log, agent_id="bob") as bob:
        run = await ann.start("sample", {})
        same = bob.run_handle("sample", run.id)
        for handle, word, key in (
            (run, "ann", "k"),
            (run, "ann again", "k"),
            (same, "bob", "k"),
            (run, "ann", "another"),
            (run, "no key", None),
            (run, "no key", None),
            (run, "end", None),
        ):
            await handle.signal("word", word, idempotency_key=key)
        async with worker(log, tmp_path):
            assert await words(run) == ["ann", "bob", "ann", "no key", "no key", "end"]


async def test_who_does_not_know_whether_a_signal_was_sent_sends_it_again_under_its_key(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(log) as client:
        run = await client.start("sample", {})
        append = log.append

        async def unknown(events: Any, **options: Any) -> Any:
            await append(events, **options)
            raise CommitUnknownError("the answer of the log was lost")

        with monkeypatch.context() as patch:
            patch.setattr(log, "append", unknown)
            with pytest.raises(CommitUnknownError):
                await run.signal("word", "one", idempotency_key="one")
        await run.signal("word", "one", idempotency_key="one")
        await run.signal("word", "end")
        async with worker(log, tmp_path):
            assert await words(run) == ["one", "end"]


async def test_the_event_id_of_another_sender_takes_no_signal_away(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        run = await client.start("sample", {})
        forged = said(run.id, "bob", BOB)
        await log.append([forged])
        await log.append([said(run.id, "ann").replace(event_id=forged.event_id)])
        await log.append([said(run.id, "end")])
        async with worker(log, tmp_path):
            assert await words(run) == ["bob", "ann", "end"]


def test_a_repetition_that_an_earlier_release_has_accepted_is_heard_in_a_replay() -> None:
    history = RunHistory()
    one = said("r", "one")
    for _ in range(2):
        history.apply(one)
    assert len(history.signals["word"]) == 2
    assert history.has_heard(one)
