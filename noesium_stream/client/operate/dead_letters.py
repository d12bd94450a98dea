"""Dead letters of inboxes: records that the owners have refused; listing, redriving and dropping them.

An owner writes a refused record, with its position and the reason, to the dead letter topic, in the commit
that decides on it. The decision about the letter is written there too: it was redriven or dropped. To redrive
a letter, its event is appended to the inbox that it came to, and the owner there handles it as any other. The
decision is in the same commit, and only one writer decides about letters at a time: it fences the previous
one and reads the earlier decisions first. So a letter is sent once, whichever process dies and however often
the command is repeated.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CorruptRecordError,
    DeadLetterError,
    EventValidationError,
    FencedError,
    LogTruncatedError,
    PermissionDeniedError,
    RecordTooLargeError,
    TopicNotFoundError,
)
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.standard import DeadLetterDropped, DeadLetterRedriven, EventValidationFailed
from noesium_stream.event.trust.policy import Policy, operator_ruling
from noesium_stream.event.trust.speaking import principal_of
from noesium_stream.log.headers import ORIGIN
from noesium_stream.log.port import EventLog, LogWriter, Outgoing, Position
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of

WRITER: Final = "dead-letters"
"""Id of the writer that decides about letters."""

Status = Literal["open", "redriven", "dropped"]
Place = tuple[Position, str | None]
"""Position of a refused record, and the id of the topic that the position refers to."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A refused record.

    Attributes:
        position: its present or former position in an inbox; `topic_id` is the id of that topic, if known.
        agent_type: agent type of the inbox.
        event_type: event type, if it can be read; so for `event_id` and `key`.
        trace: findings that led to the refusal.
        logged_ms: when it was refused, by the log's clock (milliseconds since the epoch).
        status: `open` until there is a decision.
        value: the record's bytes; `whole` is False if it was too large and is cut.
    """

    position: Position
    agent_type: str
    event_type: str | None
    event_id: str | None
    key: str | None
    reason: str
    trace: Sequence[str]
    logged_ms: int
    status: Status
    value: bytes
    whole: bool = True
    topic_id: str | None = None

    @property
    def place(self) -> Place:
        """Unique place of the record."""
        return self.position, self.topic_id


async def dead_letters(log: EventLog, agent_type: str | None = None) -> list[DeadLetter]:
    """List all letters of inboxes, or of one agent type, oldest first, including those decided about.

    Raises `LogUnavailableError`.
    """
    topic = log.topology.dlq
    try:
        until = await log.end(topic)
    except TopicNotFoundError:
        return []
    types = (EventValidationFailed.TYPE, DeadLetterRedriven.TYPE, DeadLetterDropped.TYPE)
    found: dict[Place, DeadLetter] = {}
    decided: dict[Place, Status] = {}
    async for record in log.read(topic, {}, until=until, types=types):
        payload = record.envelope.payload
        if payload.get("topic") is None:
            continue
        position = Position(payload["topic"], payload["partition"], payload["offset"])
        if record.event_type == EventValidationFailed.TYPE:
            letter = _letter(log, record, position)
            if agent_type in (None, letter.agent_type):
                found.setdefault(letter.place, letter)
        elif record.event_type == DeadLetterRedriven.TYPE:
            decided[position, payload.get("topic_id")] = "redriven"
        else:
            decided.setdefault((position, payload.get("topic_id")), "dropped")
    letters = [replace(one, status=decided.get(place, "open")) for place, one in found.items()]
    return sorted(letters, key=lambda one: (one.logged_ms, one.position))


class LetterDecider:
    """Decides about letters; fences the previous decider, so that no letter is decided twice.

    Args:
        log: an open log.
        clock: source of time and ids.
        producer: producer of the decisions.
        policy: who may decide; None: everybody.

    Create it by `opened`, and close it.
    """

    def __init__(
        self, log: EventLog, clock: Clock, producer: AgentRef, writer: LogWriter, policy: Policy | None
    ) -> None:
        self._log = log
        self._clock = clock
        self._producer = producer
        self._writer = writer
        self._policy = policy
        self._letters: dict[Place, DeadLetter] = {}

    @classmethod
    async def opened(
        cls, log: EventLog, clock: Clock, producer: AgentRef, policy: Policy | None = None
    ) -> LetterDecider:
        """Open the writer, then read the earlier decisions.

        Raises `LogUnavailableError`.
        """
        await log.ensure_topics([log.topology.spec(log.topology.dlq)])
        decider = cls(log, clock, producer, await log.writer(WRITER), policy)
        try:
            decider._letters = {letter.place: letter for letter in await dead_letters(log)}
        except BaseException:
            await decider.close()
            raise
        return decider

    async def close(self) -> None:
        """Close the writer."""
        await self._writer.close()

    def letters(self, agent_type: str, positions: Collection[Position]) -> list[DeadLetter]:
        """Return all open letters of an agent type, or those at these positions.

        Raises:
            PermissionDeniedError: the policy does not let this producer decide about letters of this agent.
            DeadLetterError: there is no letter at a position, or it is decided about already.
        """
        refused = operator_ruling(self._policy, principal_of(self._producer), "redrive", agent_type).refused
        if refused is not None:
            raise PermissionDeniedError(f"{refused}.")
        known = [letter for letter in self._letters.values() if letter.agent_type == agent_type]
        for position in positions:
            there = [letter for letter in known if letter.position == position]
            if not there:
                raise DeadLetterError(
                    f"{place_of(position)} is no dead letter of agents of type {agent_type}.",
                    hint=f"See: noesium dlq list agent:{agent_type}",
                )
            if all(letter.status != "open" for letter in there):
                raise DeadLetterError(f"The dead letter {place_of(position)} was {there[-1].status} already.")
        return [
            letter
            for letter in known
            if letter.status == "open" and (not positions or letter.position in positions)
        ]

    async def redrive(self, letter: DeadLetter) -> None:
        """Append a letter's record to its inbox again, and the decision, in one commit.

        Raises:
            DeadLetterError: the record cannot be sent: the letter has only a part of it, it is not a readable
                event, or the log would refuse it. Or another decider has fenced this one. Nothing is written.
            LogFullError, LogUnavailableError, CommitUnknownError
        """
        if not letter.whole:
            raise DeadLetterError(
                f"The dead letter {place_of(letter.position)} holds the beginning of its record alone.",
                hint="Send the event again from where it came, or drop the letter.",
            )
        record = _record(self._log, letter)
        try:
            event = record.envelope
        except CorruptRecordError as error:
            raise DeadLetterError(
                f"The dead letter {place_of(letter.position)} cannot be sent again: {error.message}",
                hint="Register the event's type or schema where this runs, or drop the letter.",
            ) from error
        trail = DeadLetterRedriven(
            **letter.position._asdict(), topic_id=letter.topic_id, redriven_by=self._producer.agent_id
        )
        await self._commit(letter, "redriven", [await self._again(letter, event), self._trail(trail, event)])

    async def drop(self, letter: DeadLetter, reason: str | None = None) -> None:
        """Write the decision to drop a letter.

        Raises:
            DeadLetterError: another decider has fenced this one.
            LogFullError, LogUnavailableError, CommitUnknownError
        """
        trail = DeadLetterDropped(
            **letter.position._asdict(),
            topic_id=letter.topic_id,
            dropped_by=self._producer.agent_id,
            reason=reason,
        )
        await self._commit(letter, "dropped", [self._trail(trail, None)])

    async def _again(self, letter: DeadLetter, event: EventEnvelope) -> Outgoing:
        inbox = letter.position.topic
        key = event.partition_key or letter.key or ""
        origin = await _origin(self._log, letter)
        headers = () if origin is None else ((ORIGIN, origin),)
        return Outgoing(event, inbox, partition_of(key, len(await self._log.end(inbox))), key, headers)

    def _trail(self, event: DeadLetterRedriven | DeadLetterDropped, cause: EventEnvelope | None) -> Outgoing:
        key = f"{event.topic}/{event.partition}"
        trace, causation_id = (None, None) if cause is None else (cause.trace, cause.event_id)
        envelope = event.to_envelope(
            self._producer, trace, causation_id, partition_key=key, clock=self._clock
        )
        return Outgoing(envelope, self._log.topology.dlq, 0, key)

    async def _commit(self, letter: DeadLetter, status: Status, records: Sequence[Outgoing]) -> None:
        place = place_of(letter.position)
        try:
            await self._writer.commit(records)
        except (EventValidationError, RecordTooLargeError) as error:
            raise DeadLetterError(f"The dead letter {place} cannot be sent again: {error.message}") from error
        except FencedError as error:
            raise DeadLetterError(
                f"Somebody else decides about dead letters at this moment; {place} was not touched.",
                hint="See what is left, and do it again: noesium dlq list",
            ) from error
        self._letters[letter.place] = replace(letter, status=status)


def place_of(position: Position) -> str:
    """Format a position as `TOPIC/PARTITION@OFFSET`."""
    return f"{position.topic}/{position.partition}@{position.offset}"


def _letter(log: EventLog, record: Record, position: Position) -> DeadLetter:
    payload = record.envelope.payload
    value = base64.b64decode(payload.get("record_base64") or "")
    trace = payload["validation_trace"]
    letter = DeadLetter(
        position=position,
        agent_type=position.topic.removeprefix(f"{log.topology.namespace}.agent.").split(".")[0],
        event_type=None,
        event_id=payload.get("original_event_id"),
        key=None,
        reason=payload["failure_reason"],
        trace=trace,
        logged_ms=record.timestamp_ms,
        status="open",
        value=value,
        whole=payload.get("whole", True),
        topic_id=payload.get("topic_id"),
    )
    try:
        event = _record(log, letter).unchecked
    except CorruptRecordError:
        return letter
    return replace(letter, event_type=event.event_type, event_id=event.event_id, key=event.partition_key)


def _record(log: EventLog, letter: DeadLetter) -> Record:
    topic, partition, offset = letter.position
    return Record(
        topic, partition, offset, letter.logged_ms, letter.key or "", None, letter.value, log.decoder
    )


async def _origin(log: EventLog, letter: DeadLetter) -> bytes | None:
    """Read the origin header (the producer's journal) of the inbox record, if that is still there."""
    position = letter.position
    until = {position.partition: position.offset + 1}
    try:
        if letter.topic_id not in (None, await log.topic_id(position.topic)):
            return None
        if (await log.end(position.topic)).get(position.partition, 0) <= position.offset:
            return None  # the inbox was created anew
        async for record in log.read(position.topic, {position.partition: position.offset}, until=until):
            if record.offset == position.offset:
                return record.header(ORIGIN)
    except (LogTruncatedError, TopicNotFoundError):
        return None
    return None
