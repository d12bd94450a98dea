"""Conversations become facts once: provenance, corrections, growth, replays and crashes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import BaseGraphicAgent, JournaledLLM, OpenAILLM
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.clock import SystemClock
from noesium_stream.errors import AgentMemoryError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import EventLog, open_log
from noesium_stream.memory import MemoryFilter, MemoryManager, memory_of
from noesium_stream.memory.extraction import (
    Extracted,
    Ingested,
    ModelExtractor,
    RuleExtractor,
    Turn,
    ingest,
)
from noesium_stream.testing import Rehearsal, ScriptedModel
from noesium_stream.testing.agents import with_model
from tests.support.model_server import model_server, said

TALK = [
    Turn("event:1", "My name is Ada. I live in Paris.", said_by="ada", at_ms=1_000),
    Turn("event:2", "Nice to meet you, Ada.", "assistant", at_ms=2_000),
    Turn("event:3", "I like tea. I moved to Rome.", said_by="ada", at_ms=3_000),
]


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


@pytest.fixture
async def memory(log: EventLog, tmp_path: Path) -> AsyncIterator[MemoryManager]:
    producer = AgentRef("test", "client", "local", "1")
    memory = memory_of(log, tmp_path, producer, "user:ada", clock=SystemClock())
    yield memory
    memory.close()


class Counting(RuleExtractor):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def extract(self, turns: Sequence[Turn], known: Sequence[str], first: int) -> Sequence[Extracted]:
        self.asked.append(len(turns) - first)
        return await super().extract(turns, known, first)


async def values(memory: MemoryManager) -> dict[str, Any]:
    items = [
        item
        for prefix in ("fact.", "preference.")
        for item in await memory.query(MemoryFilter(prefix=prefix))
    ]
    return {item.key: item.value for item in items}


async def size(log: EventLog) -> int:
    return sum([sum((await log.end(topic)).values()) for topic in await log.layout()])


async def test_facts_name_the_turns_that_say_them_and_a_later_one_takes_the_place(
    memory: MemoryManager,
) -> None:
    done = await ingest(memory, "c1", TALK, RuleExtractor())
    assert (len(done.written), done.turns) == (4, 3)
    assert await values(memory) == {"fact.home": "Rome", "fact.name": "Ada", "preference.tea": "likes tea"}
    home = await memory.durable.recall("fact.home")
    assert home is not None
    assert home.sources == ("event:3", "conversation:c1")
    assert (home.said_by, home.valid_from_ms) == ("ada", 3_000)


async def test_the_same_conversation_again_writes_nothing_and_asks_nobody(
    memory: MemoryManager, log: EventLog
) -> None:
    extractor = Counting()
    await ingest(memory, "c1", TALK, extractor)
    before = await size(log)
    assert await ingest(memory, "c1", TALK, extractor) == Ingested()
    assert await size(log) == before
    assert extractor.asked == [3]


async def test_of_a_conversation_that_has_grown_only_the_new_turns_are_read(memory: MemoryManager) -> None:
    extractor = Counting()
    await ingest(memory, "c1", TALK, extractor)
    more = [*TALK, Turn("event:4", "I don't like tea.", at_ms=4_000)]
    assert len((await ingest(memory, "c1", more, extractor)).written) == 1
    assert extractor.asked == [3, 1]
    assert (await values(memory))["preference.tea"] == "dislikes tea"


async def test_a_conversation_whose_mark_is_lost_is_read_again_and_changes_nothing(
    memory: MemoryManager,
) -> None:
    await ingest(memory, "c1", TALK, RuleExtractor())
    await memory.delete("extraction.c1")
    done = await ingest(memory, "c1", TALK, RuleExtractor())
    assert (done.written, done.unchanged) == ((), 4)
    assert (await values(memory))["fact.home"] == "Rome"


async def test_a_turn_that_is_retracted_takes_what_it_said_with_it_and_does_not_bring_it_back(
    memory: MemoryManager,
) -> None:
    await ingest(memory, "c1", TALK, RuleExtractor())
    await memory.retract("event:3")
    assert await values(memory) == {"fact.home": "Paris", "fact.name": "Ada"}
    await memory.delete("extraction.c1")
    await ingest(memory, "c1", TALK, RuleExtractor())
    assert await values(memory) == {"fact.home": "Paris", "fact.name": "Ada"}
    await memory.retract("conversation:c1")
    assert await values(memory) == {}


async def test_an_older_conversation_does_not_replace_what_was_said_since(memory: MemoryManager) -> None:
    await ingest(memory, "new", TALK, RuleExtractor())
    old = [Turn("event:0", "I live in Oslo.", at_ms=500)]
    done = await ingest(memory, "old", old, RuleExtractor())
    assert (done.written, done.outdated) == ((), 1)
    assert (await values(memory))["fact.home"] == "Rome"


async def test_impossible_sources_and_ids_are_refused_before_anything_is_written(
    memory: MemoryManager, log: EventLog
) -> None:
    for conversation, turn in (("x" * 2_000, TALK[0]), ("c", Turn("", "I live in Rome"))):
        with pytest.raises(AgentMemoryError):
            await ingest(memory, conversation, [turn], RuleExtractor())
    assert await memory.query() == []


class Said(TypedDict, total=False):
    turns: list[str]
    found: Any


class Listener(BaseGraphicAgent):
    """Remembers what it is told, by a model if it has one."""

    agent_type = "listener"

    def get_state_class(self) -> type[Said]:
        return Said

    def _build_graph(self) -> StateGraph[Any]:
        return StateGraph(Said).add_node("listen", self.listen).add_edge(START, "listen")

    async def listen(self, told: Said) -> dict[str, Any]:
        turns = [Turn(f"mail:{at}", text) for at, text in enumerate(told["turns"])]
        extractor = RuleExtractor() if self.llm is None else ModelExtractor(self.llm)
        done = await ingest(self.memory, "mails", turns, extractor)
        return {"found": [len(done.written), await self.memory.recall("fact.home")]}


ANSWER = json.dumps({"found": [{"kind": "fact", "name": "home", "value": "Rome", "turns": [0]}]})


@pytest.mark.parametrize("crash", [None, "effect.completed", "model.completed", "memory.written"])
async def test_in_a_node_facts_commit_with_the_step_once_and_a_replay_asks_no_model(
    crash: str | None,
) -> None:
    model = ScriptedModel(lambda prompt: ANSWER)
    async with Rehearsal(Listener, model=model) as rehearsal:
        if crash is not None:
            rehearsal.crash_before(crash)
        run = await rehearsal.start({"turns": ["I live in Rome"]})
        assert (await run.result())["found"] == [1, "Rome"]
        events = await run.history()
        asked = len(model.prompts)
        again = await rehearsal.start({"turns": ["I live in Rome"]})
        assert (await again.result())["found"] == [0, "Rome"]
        assert len(model.prompts) == asked
        handle = await rehearsal.client.get_run(run.id)
        target = agent_target(with_model(Listener, model), rehearsal.log)
        assert (await verify(handle, target)).difference is None
        assert len(model.prompts) == asked
    written = [event.payload["key"] for event in events if event.event_type == "memory.written"]
    assert written == ["fact.home", "extraction.mails"]


async def test_a_model_behind_a_real_protocol_extracts_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_server([said(ANSWER)]) as server:
        client = OpenAILLM("openai:gpt-4o-mini", base_url=server.openai, api_key="sk-of-the-test")

        class Served(Listener):
            def __init__(self, options: Any, context: Any) -> None:
                super().__init__(options, context)
                self.llm = JournaledLLM(client)

        async with Rehearsal(Served) as rehearsal:
            run = await rehearsal.start({"turns": ["I live in Rome"]})
            assert (await run.result())["found"] == [1, "Rome"]
        assert len(server.requests) == 1


def test_two_conversations_at_once_do_not_mix(tmp_path: Path) -> None:
    async def both() -> dict[str, Any]:
        log = await open_log("memory://")
        memory = memory_of(log, tmp_path, AgentRef("t", "client", "local", "1"), "user:ada")
        other = memory.at("user:bob")
        await asyncio.gather(
            ingest(memory, "c", [Turn("event:1", "I live in Paris")], RuleExtractor()),
            ingest(other, "c", [Turn("event:2", "I live in Rome")], RuleExtractor()),
        )
        found = {"ada": await memory.recall("fact.home"), "bob": await other.recall("fact.home")}
        memory.close()
        await log.close()
        return found

    assert asyncio.run(both()) == {"ada": "Paris", "bob": "Rome"}
