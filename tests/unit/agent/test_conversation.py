"""Conversations: turns, what is taken back, reviews, and a process that dies at each of their events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from noesium_stream.agent import BaseHitlAgent, ConversationState, Dialogue, Reply, UserMessage
from noesium_stream.client.conversation import Conversation
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ConfigError, EventValidationError, ModelOutageError, RunFailedError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.testing import Rehearsal
from tests.support.chosen import one_of
from tests.support.reading import PATIENCE_S
from tests.support.talking import ORDERS, Clerk, talk

USER = "ada"


async def spoken(rehearsal: Rehearsal) -> Conversation:
    """The whole conversation, from its first word."""
    conversation = await rehearsal.client.start_conversation("clerk", user=USER)
    await talk(conversation)
    return conversation


def told(conversation: Conversation) -> list[tuple[int, str, str, bool]]:
    return [(turn.number, turn.said, turn.answer, turn.undone) for turn in conversation.view.turns]


EXPECTED = [
    (1, "call me Ada", "Ada", False),
    (2, "order tea", "ordered tea", False),
    (3, "call me Bob", "Bob", True),
    (3, "who am I", "You are Ada.", False),
]


async def test_a_conversation_goes_from_turn_to_turn_and_takes_one_back() -> None:
    ORDERS.clear()
    async with Rehearsal(Clerk) as rehearsal:
        conversation = await spoken(rehearsal)
        assert told(conversation) == EXPECTED
        assert ORDERS == ["tea"]
        again = await rehearsal.client.conversation(conversation.id)
        assert again.view == conversation.view
        [first, *_] = again.view.turns
        item = await rehearsal.client.memory(f"user:{USER}").durable.recall("name")
        assert item is not None
        assert item.value == "Ada"
        assert item.sources == (f"event:{first.message_id}",)
        assert first.sources == (f"memory:{item.id}",)
        await conversation.close()
        result = await conversation.run.result(timeout=PATIENCE_S)
        assert [turn["said"] for turn in result["turns"]] == [
            said for _, said, _, undone in EXPECTED if not undone
        ]


async def events_of_one() -> int:
    """How many events the commits of an undisturbed conversation have."""
    count = 0

    def seen(event: EventEnvelope) -> bool:
        nonlocal count
        count += 1
        return False

    async with Rehearsal(Clerk) as rehearsal:
        rehearsal.crash_when(seen)
        await spoken(rehearsal)
    return count


def the_nth(number: int) -> Callable[[EventEnvelope], bool]:
    left = number

    def when(event: EventEnvelope) -> bool:
        nonlocal left
        left -= 1
        return left == 0

    return when


@pytest.mark.timeout(600)
@pytest.mark.parametrize("reaches_log", one_of(2, [False, True]))
async def test_whichever_event_a_process_dies_at_the_next_one_has_the_same_conversation(
    reaches_log: bool,
) -> None:
    ORDERS.clear()
    count = await events_of_one()
    assert count > 50, "it has a turn, a tool, a question, a retraction"
    deaths = 0
    for number in range(1, count + 1):
        ORDERS.clear()
        async with Rehearsal(Clerk) as rehearsal:
            rehearsal.crash_when(the_nth(number), reaches_log=reaches_log)
            conversation = await spoken(rehearsal)
            deaths += rehearsal.crashes
            assert told(conversation) == EXPECTED, number
            assert len(ORDERS) <= 1, f"a tool was called twice at {number}"
            again = await rehearsal.client.conversation(conversation.id)
            assert again.view == conversation.view, number
            assert await rehearsal.client.memory(f"user:{USER}").recall("name") == "Ada", number
    assert deaths >= count - 8, "only what follows the last answer can come too late to kill anybody"


async def test_a_step_records_the_turn_that_it_adds_and_not_all_that_the_state_holds() -> None:
    async with Rehearsal(Clerk) as rehearsal:
        conversation = await rehearsal.client.start_conversation("clerk", user=USER)
        for number in range(30):
            await conversation.process_user_message(f"who {number} {'x' * 500}")
        sizes = [
            len(json.dumps(event.payload))
            async for event in conversation.run.events(follow=False)
            if event.event_type == "kernel.node.completed" and event.payload["node"] == "respond"
        ]
        assert max(sizes) < 1.1 * min(sizes)
        assert (await verify(conversation.run, agent_target(Clerk, rehearsal.log))).difference is None


class Counted(ConversationState, total=False):
    count: int


class Counter(BaseHitlAgent):
    """Counts messages in its own part of the state; fails as it is told."""

    agent_type = "counter"
    window = 3

    def get_state_class(self) -> type[Any]:
        return Counted

    async def start_conversation(self, dialogue: Dialogue) -> str | None:
        return f"Hello, {dialogue.user}."

    async def process_user_message(self, message: UserMessage, dialogue: Dialogue) -> Reply | str:
        if message.text == "fail":
            raise ModelOutageError("nobody answers")
        if message.text == "break":
            raise ValueError("a bug")
        await self.memory.write("last", message.text)
        count = dialogue.state.get("count", 0) + 1
        return Reply(str(count), update={"count": count})


async def test_a_turn_that_is_taken_back_leaves_nothing_in_the_state_or_in_memory() -> None:
    # Virtual clocks give ids that do not grow: which of two writes of one moment is later would be chance.
    async with Rehearsal(Counter, clock=SystemClock()) as rehearsal:
        conversation = await rehearsal.client.start_conversation("counter", user=USER)
        memory = rehearsal.client.memory("agent:counter")
        assert (await conversation.process_user_message("a")).answer == "1"
        assert (await conversation.process_user_message("b")).answer == "2"
        assert await memory.recall("last") == "b"
        undone = await conversation.undo()
        assert undone is not None
        assert undone.said == "b"
        assert await memory.recall("last") == "a"
        assert (await conversation.process_user_message("c")).answer == "2"
        assert conversation.view.greeting == "Hello, ada."
        history = [event async for event in conversation.run.events(follow=False)]
        assert [event.payload["value"] for event in history if event.event_type == "run.signalled"][1] == {
            "text": "b"
        }


async def test_only_the_last_turns_can_be_taken_back_and_more_are_not_in_the_state() -> None:
    async with Rehearsal(Counter) as rehearsal:
        conversation = await rehearsal.client.start_conversation("counter", user=USER)
        for number in range(5):
            assert (await conversation.process_user_message(f"m{number}")).number == number + 1
        taken = [await conversation.undo() for _ in range(4)]
        assert [None if turn is None else turn.said for turn in taken] == ["m4", "m3", "m2", None]
        assert [turn.said for turn in conversation.view.live] == ["m0", "m1"]
        assert (await conversation.process_user_message("on")).number == 3


async def test_a_model_that_fails_ends_the_turn_and_a_bug_the_run() -> None:
    async with Rehearsal(Counter) as rehearsal:
        conversation = await rehearsal.client.start_conversation("counter", user=USER)
        failed = await conversation.process_user_message("fail")
        assert failed.failed
        assert failed.answer == "I could not answer: nobody answers"
        assert not (await conversation.process_user_message("a")).failed
        await conversation.say("break")
        with pytest.raises(RunFailedError, match="a bug"):
            await conversation.run.result(timeout=PATIENCE_S)


async def test_what_is_no_message_is_refused_and_the_conversation_goes_on() -> None:
    async with Rehearsal(Counter) as rehearsal:
        conversation = await rehearsal.client.start_conversation("counter", user=USER)
        for wrong in ("", "   ", "x" * 100_001):
            with pytest.raises(EventValidationError, match="message"):
                await conversation.process_user_message(wrong)
        for value in (None, 7, [], {"text": 3}, {"undo": "yes"}, {"close": 1}):
            await conversation.run.signal("message", value)
        await conversation.run.signal("message", "a plain text")
        assert (await conversation.process_user_message("b")).answer == "2"
        assert [turn.said for turn in conversation.view.turns] == ["a plain text", "b"]


@pytest.mark.parametrize("input", [{}, {"user": ""}, {"user": "a\nb"}, {"user": "x" * 200}, {"user": 7}])
def test_a_conversation_needs_a_user(input: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="needs a user"):
        Counter.check_input(input)


class Reviewed(Counter):
    agent_type = "reviewed"
    review_nodes = ("deliver",)
    reviewers = ("eve",)


async def test_an_answer_is_reviewed_before_it_is_delivered() -> None:
    async with Rehearsal(Reviewed) as rehearsal:
        conversation = await rehearsal.client.start_conversation("reviewed", user=USER)

        async def reviewed(text: str, approved: bool, value: str | None = None) -> str:
            await conversation.say(text)
            async for event in conversation.events():
                if event.event_type == "approval.requested":
                    assert event.payload["approvers"] == ["eve"]
                    assert event.payload["question"]["said"] == text
                    answer = conversation.run.approve if approved else conversation.run.reject
                    await answer(event.payload["approval_id"], value=value, by="eve")
                if event.event_type == "conversation.turn.completed":
                    return str(event.payload["answer"])
            raise AssertionError("it ended")

        assert await reviewed("a", True) == "1"
        assert await reviewed("b", True, "two") == "two"
        assert await reviewed("c", False) == "eve has held the answer back."


async def test_reviews_of_nodes_that_are_not_there_are_refused() -> None:
    class Wrong(Counter):
        agent_type = "wrong"
        review_nodes = ("send",)

    with pytest.raises(ConfigError, match="before the node send"):
        async with Rehearsal(Wrong):
            pass
