"""An agent to talk to, and a person who says the same things, whatever happens to the process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from noesium_stream.agent import BaseHitlAgent, Dialogue, Reply, UserMessage
from noesium_stream.client.conversation import Conversation
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.tool import Mode, tool

SAID = ("call me Ada", "order tea", "call me Bob", "undo", "who am I")
ORDERS: list[str] = []
"""What the tool was called for, in this process."""


@tool(side_effects=SideEffectClass.EXTERNAL)
def order(item: str) -> str:
    """Order something."""
    ORDERS.append(item)
    return f"ordered {item}"


class Clerk(BaseHitlAgent):
    """Remembers a name, and orders what it is told."""

    agent_type = "clerk"
    tools = (order,)
    mode = Mode.ACT

    async def process_user_message(self, message: UserMessage, dialogue: Dialogue) -> Reply | str:
        """Remember, order, or say who somebody is."""
        verb, _, rest = message.text.partition(" ")
        if verb == "call":
            name = rest.removeprefix("me ")
            fact = await dialogue.user_memory.write("name", name)
            return Reply(name, [f"memory:{fact}"])
        if verb == "order":
            return Reply(await current_step().tool("order", item=rest), ["tool:order"])
        return f"You are {await dialogue.user_memory.recall('name')}."


async def talk(conversation: Conversation, said: Sequence[str] = SAID) -> list[EventEnvelope]:
    """Say one thing after the other, with yes to each question; return the events that were seen.

    What an earlier process has said of it, by the conversation's view, is not said again.
    """
    seen: list[EventEnvelope] = []
    view = conversation.view
    done = len(view.turns) + sum(turn.undone for turn in view.turns)
    if not view.waiting:
        await _say(conversation, said[done])
    async with aclosing(conversation.events()) as events:
        await _take_up(conversation)
        async for event in events:
            seen.append(event)
            await _react(conversation, event.event_type, event.payload)
            if event.event_type in ("conversation.turn.completed", "conversation.turn.undone"):
                done += 1
                if done == len(said):
                    break
                await _say(conversation, said[done])
    return seen


async def _say(conversation: Conversation, text: str) -> None:
    if text == "undo":
        await conversation.request_undo()
    else:
        await conversation.say(text)


async def _take_up(conversation: Conversation) -> None:
    for question in await conversation.run.approvals():
        if question.status == "open":
            await conversation.run.approve(question.approval_id)
    for effect in await conversation.run.unresolved_effects():
        await conversation.run.resolve_effect(
            effect.effect_id, "result", f"ordered {_item(effect.arguments)}"
        )


async def _react(conversation: Conversation, kind: str, payload: dict[str, Any]) -> None:
    run = conversation.run
    if kind == "approval.requested":
        await run.approve(payload["approval_id"])
    elif kind == "effect.outcome.unknown":
        [effect] = await run.unresolved_effects()
        await run.resolve_effect(effect.effect_id, "result", f"ordered {_item(effect.arguments)}")


def _item(arguments: Any) -> str:
    return str(arguments["kwargs"]["item"])
