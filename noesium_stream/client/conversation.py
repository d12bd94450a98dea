"""A conversation with an agent, for programs and for `noesium chat` (RFC-1001 §11.1, RFC-1002).

It is a run, and the run's id is its session. Everything here is on the log: any process can read it, and go
on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from noesium_stream.client.run import Run
from noesium_stream.client.views.run_reader import Since
from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import EventValidationError, RunEndedError, RunTimeoutError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.standard import (
    ConversationMessageRefused,
    ConversationOpened,
    ConversationTurnCompleted,
    ConversationTurnUndone,
    RunSignalled,
)
from noesium_stream.event.standard.conversation import MESSAGE
from noesium_stream.log.generations import generations
from noesium_stream.log.record import Record

_OWN: Final = (
    ConversationOpened.TYPE,
    ConversationTurnCompleted.TYPE,
    ConversationTurnUndone.TYPE,
    ConversationMessageRefused.TYPE,
    RunSignalled.TYPE,
    *ENDINGS,
)


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """A message and its answer.

    Attributes:
        number: from 1 on; one that was taken back leaves its number to the next.
        message_id: the event that the message is; `event:ID` is the source of what memory has from it.
        said: the message.
        said_by: who sent it.
        said_ms: when, in milliseconds since the epoch.
        answer: the answer.
        sources: what the answer comes from: `memory:ID`, `document:PATH#LINES`, `tool:NAME`, `model:NAME`.
        failed: whether the answer says why there is none.
        undone: whether it was taken back.
    """

    number: int
    message_id: str
    said: str
    said_by: str
    said_ms: int
    answer: str
    sources: tuple[str, ...] = ()
    failed: bool = False
    undone: bool = False


@dataclass
class ConversationView:
    """A fold over the journal of a conversation.

    Attributes:
        user: whose it is; empty before it has been opened.
        title: what it is about.
        greeting: what the agent has said first.
        turns: all turns in the order of the log, those that were taken back included.
        waiting: messages without an answer yet, by their event's id.
        ended: whether the run has ended.
    """

    user: str = ""
    title: str | None = None
    greeting: str | None = None
    turns: list[ConversationTurn] = field(default_factory=list)
    waiting: dict[str, EventEnvelope] = field(default_factory=dict)
    ended: bool = False

    @property
    def live(self) -> list[ConversationTurn]:
        """The turns that were not taken back."""
        return [turn for turn in self.turns if not turn.undone]

    def apply(self, event: EventEnvelope) -> None:
        """Take the next event of the run's journal; others than those of a conversation change nothing."""
        payload = event.payload
        if event.event_type in ENDINGS:
            self.ended = True
        elif event.event_type == RunSignalled.TYPE and payload["name"] == MESSAGE:
            self.waiting[event.event_id] = event
        elif event.event_type == ConversationOpened.TYPE:
            self.user, self.title = payload["user"], payload.get("title")
            self.greeting = payload.get("greeting")
        elif event.event_type == ConversationMessageRefused.TYPE:
            self.waiting.pop(payload["message_id"], None)
        elif event.event_type == ConversationTurnUndone.TYPE:
            self.waiting.pop(payload["request_id"], None)
            for at, turn in enumerate(self.turns):
                if turn.message_id == payload["message_id"]:
                    self.turns[at] = replace(turn, undone=True)
        elif event.event_type == ConversationTurnCompleted.TYPE:
            self._answered(payload)

    def _answered(self, payload: Mapping[str, Any]) -> None:
        asked = self.waiting.pop(payload["message_id"], None)
        said: Any = None if asked is None else asked.payload.get("value")
        self.turns.append(
            ConversationTurn(
                number=payload["turn"],
                message_id=payload["message_id"],
                said=str(said.get("text", "") if isinstance(said, Mapping) else said or ""),
                said_by="" if asked is None else asked.producer.agent_id,
                said_ms=0 if asked is None else asked.timestamp_ms,
                answer=payload["answer"],
                sources=tuple(payload.get("sources") or ()),
                failed=payload.get("failed") is True,
            )
        )


class Conversation:
    """A conversation, made by `Client.start_conversation` and `Client.conversation`.

    Attributes:
        run: the run that it is; `approve` and `cancel` are there.
        view: what this process has read of it.
    """

    def __init__(self, run: Run, since: Since | None) -> None:
        self.run = run
        self.view = ConversationView()
        self._since = since
        self._heard: set[str] = set()

    @property
    def id(self) -> str:
        """The run's id, which is the session's."""
        return self.run.id

    async def refresh(self) -> ConversationView:
        """Read what the log has now.

        Raises:
            LogUnavailableError
        """
        # All of them: what follows begins behind the last record, whatever that is.
        async with aclosing(self._records(follow=False, everything=True)) as records:
            async for _ in records:
                pass
        return self.view

    async def read_sent(self) -> None:
        """Add the messages to the view that were sent and that no worker has accepted yet.

        Raises:
            LogUnavailableError
        """
        async with aclosing(self.run.requests((RunSignalled.TYPE,))) as sent:
            async for event in sent:
                if event.event_id not in self._heard:
                    self.view.apply(event)

    async def say(self, text: str) -> str:
        """Send a message; return the id of its event. Raises as `Run.signal`."""
        return await self.run.send_signal(MESSAGE, {"text": text})

    async def request_undo(self) -> str:
        """Ask for the last turn to be taken back; return the id of the request. Raises as `Run.signal`."""
        return await self.run.send_signal(MESSAGE, {"undo": True})

    async def close(self) -> None:
        """End the conversation: its run completes. Raises as `Run.signal`."""
        await self.run.send_signal(MESSAGE, {"close": True})

    async def process_user_message(self, text: str, *, timeout: Duration | None = None) -> ConversationTurn:
        """Send a message and wait for its answer.

        Raises:
            EventValidationError: it is no message: empty, or too long.
            RunEndedError: the conversation has ended.
            RunTimeoutError: no answer in time; the agent goes on with it.
        """
        await self._reach(await self.say(text), ConversationTurnCompleted.TYPE, "message_id", timeout)
        return self.view.turns[-1]

    async def undo(self, *, timeout: Duration | None = None) -> ConversationTurn | None:
        """Take the last turn back; return it, or None if the state holds none. Raises as above."""
        request_id = await self.request_undo()
        undone = await self._reach(request_id, ConversationTurnUndone.TYPE, "request_id", timeout)
        message_id = undone.payload["message_id"]
        return next((turn for turn in self.view.turns if turn.message_id == message_id), None)

    async def events(self, *, everything: bool = True) -> AsyncGenerator[EventEnvelope, None]:
        """Yield the events to come, after those that were read, until the run has ended.

        Args:
            everything: all events of the run's journal; else those of the conversation alone.
        """
        async with aclosing(self._records(follow=True, everything=everything)) as records:
            async for record in records:
                yield record.unchecked

    async def _reach(self, id_: str, kind: str, name: str, timeout: Duration | None) -> EventEnvelope:
        limit = None if timeout is None else in_seconds(timeout, "timeout")
        try:
            async with asyncio.timeout(limit), aclosing(self.events(everything=False)) as events:
                async for event in events:
                    if event.event_type == kind and event.payload[name] == id_:
                        return event
                    refused = event.event_type == ConversationMessageRefused.TYPE
                    if refused and event.payload["message_id"] == id_:
                        raise EventValidationError("text", event.payload["reason"])
        except TimeoutError:
            raise RunTimeoutError(
                f"The conversation {self.id} has no answer after {limit:g} s.",
                hint="The agent goes on with it; see noesium show.",
            ) from None
        raise RunEndedError(f"The conversation {self.id} has ended.", hint="Begin another one.")

    async def _records(self, *, follow: bool, everything: bool) -> AsyncGenerator[Record, None]:
        run = self.run.reading_since(self._since)
        types = None if everything else _OWN
        async with aclosing(run.records(follow=follow, types=types)) as records:
            async for record in records:
                await self._note(record)
                if record.event_type == RunSignalled.TYPE:
                    self._heard.add(record.unchecked.event_id)
                if record.event_type in _OWN:
                    self.view.apply(record.unchecked)
                yield record

    async def _note(self, record: Record) -> None:
        """Note the position: the next reading begins behind it."""
        since = self._since
        if since is None or since.generation.journal != record.topic:
            found = await generations(self.run.log, self.run.agent_type)
            generation = next(one for one in found if one.journal == record.topic)
        else:
            generation = since.generation
        self._since = Since(generation, {record.partition: record.offset + 1})
