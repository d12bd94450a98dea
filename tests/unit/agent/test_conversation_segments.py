"""Conversations that go on for months: in segments, and still one run to everybody who reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest

from agents.assistant import Assistant
from noesium_stream.agent import BaseHitlAgent, Dialogue, Reply, UserMessage
from noesium_stream.cli.commands.chat import asides
from noesium_stream.client import Client
from noesium_stream.client.conversation import Conversation
from noesium_stream.client.operate.fork import fork
from noesium_stream.client.operate.replay import recording, state_at, verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.clock import SystemClock
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import ConversationOpened
from noesium_stream.kernel.segment_state import STARTED
from noesium_stream.log import EventLog, open_log
from noesium_stream.memory import EphemeralMemory
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.run_session import RunSession
from tests.support.chosen import one_of
from tests.support.talking import ORDERS, Clerk, talk

USER = "ada"
TURNS = 9


class Brief(Clerk):
    """A clerk whose segments have two turns."""

    segment_steps: ClassVar[int | None] = 4


class Diary(BaseHitlAgent):
    """Counts in its working memory, and remembers what it was told last."""

    agent_type = "diary"
    segment_steps: ClassVar[int | None] = 4

    async def process_user_message(self, message: UserMessage, dialogue: Dialogue) -> Reply | str:
        notes = EphemeralMemory()
        count = (notes.get("count") or 0) + 1
        notes.set("count", count)
        before = await dialogue.user_memory.recall("last")
        fact = await dialogue.user_memory.write("last", message.text)
        return Reply(f"{count}, after {before}", [f"memory:{fact}"])


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    log = await open_log(f"sqlite:///{tmp_path}/log.db?partitions=1")
    yield log
    await log.close()


async def events_of(conversation: Conversation) -> list[EventEnvelope]:
    return [event async for event in conversation.run.events(follow=False)]


def segments_in(events: list[EventEnvelope]) -> list[int]:
    return [event.payload["segment"] for event in events if event.event_type == STARTED]


async def said(conversation: Conversation, first: int, count: int) -> list[str]:
    return [
        (await conversation.process_user_message(f"m{number}")).answer
        for number in range(first, first + count)
    ]


def test_a_conversation_is_divided_into_segments_unless_its_agent_says_otherwise() -> None:
    assert BaseHitlAgent.segment_steps == Assistant.segment_steps == 200


async def test_what_a_conversation_knows_is_the_same_over_its_segments(log: EventLog, tmp_path: Path) -> None:
    """Each worker and each reader takes it up in another segment."""
    async with Client(log, agent_id=USER) as client:
        async with Worker(log, [Diary], home=tmp_path / "1"):
            conversation = await client.start_conversation("diary", user=USER)
            answers = await said(conversation, 1, 5)
        again = await client.conversation(conversation.id)
        async with Worker(log, [Diary], home=tmp_path / "2"):
            answers += await said(again, 6, 4)
            assert answers == [f"{n}, after {f'm{n - 1}' if n > 1 else None}" for n in range(1, TURNS + 1)]
            taken_back = [await again.undo() for _ in range(6)]
            assert [None if turn is None else turn.said for turn in taken_back] == [
                f"m{number}" for number in range(TURNS, 3, -1)
            ]
            assert (await again.process_user_message("on")).answer == "10, after m3"
            assert again.view.turns[-1].number == 4
        events = await events_of(again)
        view = (await client.conversation(again.id)).view
        assert view == again.view
        assert [turn.said for turn in view.live] == ["m1", "m2", "m3", "on"]
        verdict = await verify(again.run, agent_target(Diary, log))
        assert (verdict.difference, verdict.steps) == (None, 1 + 2 * 10 + 6)
    segments = segments_in(events)
    assert segments == list(range(2, 2 + len(segments)))
    assert len(segments) >= 6


async def test_history_and_why_show_all_segments(
    log: EventLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Client(log, agent_id=USER) as client, Worker(log, [Diary], home=tmp_path):
        conversation = await client.start_conversation("diary", user=USER)
        await said(conversation, 1, TURNS)
        late = await client.conversation(conversation.id)
        asides.print_history(late.view.turns)
        printed = capsys.readouterr().out.splitlines()
        assert [line for line in printed if "> " in line] == [f"{n}> m{n}" for n in range(1, TURNS + 1)]
        memory = client.memory(f"user:{USER}", home=tmp_path)
        await asides.print_why(memory, late, "last")
        assert f"in turn {TURNS} of this conversation: m{TURNS}" in capsys.readouterr().out
        [first, *_] = late.view.turns
        await asides.print_why(memory, late, first.sources[0])
        assert "in turn 1 of this conversation: m1" in capsys.readouterr().out


async def test_who_takes_over_reads_the_last_turns_and_not_all(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    replay = RunSession.replay

    def counted(session: RunSession, event: EventEnvelope) -> None:
        read.append(event.event_type)
        replay(session, event)

    monkeypatch.setattr(RunSession, "replay", counted)
    async with Client(log, agent_id=USER) as client:
        async with Worker(log, [Diary], home=tmp_path / "1"):
            conversation = await client.start_conversation("diary", user=USER)
            await said(conversation, 1, 40)
        read.clear()
        async with Worker(log, [Diary], home=tmp_path / "2"):
            assert await said(conversation, 41, 1) == ["41, after m40"]
    assert read[:3] == ["run.requested", "run.started", STARTED]
    assert read.count("kernel.node.completed") <= 4
    assert ConversationOpened.TYPE not in read


@pytest.mark.timeout(600)
@pytest.mark.parametrize("reaches_log", one_of(2, [True, False]))
async def test_a_death_at_any_event_of_a_conversation_in_segments_changes_nothing(reaches_log: bool) -> None:
    deaths, number, last = 0, 0, False
    while not last:
        number += 1
        ORDERS.clear()
        async with Rehearsal(Brief) as rehearsal:
            left = [number]

            def dies(event: EventEnvelope, left: list[int] = left) -> bool:
                left[0] -= 1
                return left[0] == 0

            rehearsal.crash_when(dies, reaches_log=reaches_log)
            conversation = await rehearsal.client.start_conversation("clerk", user=USER)
            await talk(conversation)
            deaths += rehearsal.crashes
            last = left[0] > 0
            turns = [(turn.number, turn.said, turn.undone) for turn in conversation.view.turns]
            assert turns == [
                (1, "call me Ada", False),
                (2, "order tea", False),
                (3, "call me Bob", True),
                (3, "who am I", False),
            ], number
            assert conversation.view.turns[-1].answer == "You are Ada.", number
            assert len(ORDERS) <= 1, f"a tool was called twice at {number}"
            segments = [
                e.payload["segment"] for e in await events_of(conversation) if e.event_type == STARTED
            ]
            assert segments == list(range(2, 2 + len(segments))), number
    assert deaths > 50


@pytest.mark.parametrize("turn", [1, 2, 3, 7])
async def test_a_conversation_is_forked_in_each_of_its_segments(
    log: EventLog, tmp_path: Path, turn: int
) -> None:
    async with Client(log, agent_id=USER) as client, Worker(log, [Diary], home=tmp_path):
        conversation = await client.start_conversation("diary", user=USER)
        await said(conversation, 1, TURNS)
        target, step = agent_target(Diary, log), 1 + 2 * turn
        state = await state_at(target, await recording(conversation.run), step)
        assert [one["said"] for one in state["turns"]] == [f"m{number}" for number in range(1, turn + 1)]
        run = await fork(client, conversation.run, step, {}, target)
        other = await client.conversation(run.id)
        answer = await other.process_user_message("another way")
        assert answer.number == turn + 1
        assert (await verify(other.run, target)).difference is None


async def test_a_conversation_of_an_earlier_release_goes_on_in_segments() -> None:
    class Whole(Diary):
        segment_steps: ClassVar[int | None] = None

    async with Rehearsal(Whole, clock=SystemClock()) as rehearsal:
        conversation = await rehearsal.client.start_conversation("diary", user=USER)
        await said(conversation, 1, 4)
        assert not segments_in(await events_of(conversation))
        Whole.segment_steps = 4
        await rehearsal.crash()
        assert await said(conversation, 5, 2) == ["5, after m4", "6, after m5"]
        assert segments_in(await events_of(conversation))[:1] == [2]
