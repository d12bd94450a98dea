"""What a `BaseHitlAgent` and its authors hand each other: messages, answers, turns, the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from noesium_stream.memory import MemoryManager


class Turn(TypedDict):
    """A turn that the state holds.

    Attributes:
        number: from 1 on.
        message_id: the event that the message is.
        said_by: who has said it.
        said: the message.
        answer: the answer.
        before: keys of the state that the turn has changed, with what they were.
    """

    number: int
    message_id: str
    said_by: str
    said: str
    answer: str
    before: dict[str, Any]


def changed_turns(turns: list[Turn], change: list[Turn] | dict[str, Any]) -> list[Turn]:
    """The reducer of `turns`: a step records what it changes, and not all turns again.

    Args:
        turns: what they are.
        change: `{"add": turn, "window": n}`, `{"drop": n}` for the last ones, or all of them.
    """
    if isinstance(change, list):
        return change
    if "drop" in change:
        return turns[: -change["drop"]]
    return [*turns, change["add"]][-change["window"] :]


class ConversationState(TypedDict, total=False):
    """The state of a conversation; a subclass may have more keys.

    Attributes:
        user: whose conversation it is.
        title: what it is about.
        heard: how many messages, and requests to take one back, were taken.
        number: the number of the last turn; 0: there is none.
        turns: the last turns.
        message: the message that is being answered; None: none.
        draft: its answer, before it is delivered.
        next: the node that comes next.
    """

    user: str
    title: str | None
    heard: int
    number: int
    turns: Annotated[list[Turn], changed_turns]
    message: dict[str, Any] | None
    draft: dict[str, Any] | None
    next: str


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a person has said.

    Attributes:
        text: the message.
        said_by: the name in which it was sent.
        id: the event that it is, a source for memory: `event:ID`.
        sent_ms: when it was sent, in milliseconds since the epoch.
    """

    text: str
    said_by: str
    id: str
    sent_ms: int

    @property
    def source(self) -> str:
        """The message as a source of memory."""
        return f"event:{self.id}"


@dataclass(frozen=True, slots=True)
class Reply:
    """What an agent answers.

    Attributes:
        text: the answer.
        sources: what it comes from: `memory:ID`, `document:PATH#LINES`, `tool:NAME`, `model:PROVIDER:NAME`,
            or a text of one's own. The first 100 count.
        update: further keys of the state, with their new values; `/undo` gives them back their old ones.
    """

    text: str
    sources: Sequence[str] = ()
    update: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation, as the agent sees it while it answers.

    Attributes:
        user: whose conversation it is.
        turns: the last turns, oldest first.
        state: the whole state.
        user_memory: what is remembered of the user, in all conversations.
        session_memory: what is remembered of this conversation alone.
    """

    user: str
    turns: Sequence[Turn]
    state: Mapping[str, Any]
    user_memory: MemoryManager
    session_memory: MemoryManager
