"""Conversations (RFC-1001 §11, RFC-1002): what an agent and a person have said to each other.

A conversation is a run. What the person says is `run.signalled` with the name `message`; these events say
what became of it. They are in the journal of the agent, in the commit of the step that made them.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from noesium_stream.event.domain_event import Form
from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Text, Whole

MESSAGE: Final = "message"
"""The name of the signals that a conversation takes."""
MAX_USER: Final = 195
"""Characters of a user's name: `user:NAME` is a scope of memory."""
MAX_TITLE: Final = 200
MAX_SOURCES: Final = 100
MAX_SOURCE: Final = 1_024

User = Annotated[str, Form(minLength=1, maxLength=MAX_USER)]
Sources = Annotated[list[Annotated[str, Form(minLength=1, maxLength=MAX_SOURCE)]], Form(maxItems=MAX_SOURCES)]


class ConversationOpened(StandardEvent, event_type="conversation.opened"):
    """A conversation has begun; `greeting` is what the agent has said first."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("title", "greeting")

    run_id: Identifier
    user: User
    title: Annotated[str, Form(maxLength=MAX_TITLE)] | None = None
    greeting: Text | None = None


class ConversationTurnCompleted(StandardEvent, event_type="conversation.turn.completed"):
    """The agent has answered a message.

    `turn` counts from 1, and a turn that was taken back leaves its number to the next one. `message_id` is
    the event that the message is. `sources` are what the answer comes from: `memory:ID`,
    `document:PATH#LINES`, `tool:NAME`, `model:PROVIDER:NAME`. With `failed` the answer says why there is
    none.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("sources", "failed")

    run_id: Identifier
    turn: Whole = Field(ge=1)
    message_id: Identifier
    answer: Text
    sources: Sources | None = None
    failed: bool | None = None


class ConversationTurnUndone(StandardEvent, event_type="conversation.turn.undone"):
    """The last turn was taken back: neither the state of the run nor memory holds it any more.

    `turn` and `message_id` are those of that turn; null: there was none to take back. `request_id` is the
    event that has asked for it.
    """

    run_id: Identifier
    request_id: Identifier
    turn: Whole | None = Field(default=None, ge=1)
    message_id: Identifier | None = None


class ConversationMessageRefused(StandardEvent, event_type="conversation.message.refused"):
    """What was sent is no message; the conversation waits for the next one."""

    run_id: Identifier
    message_id: Identifier
    reason: Text
