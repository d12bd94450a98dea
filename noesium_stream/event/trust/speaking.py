"""In whose name an event speaks, and whether the key that signed its record may do that.

Pure functions of a record's topic, its event and the key; see `trusted_key` for the form of names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import AgentRef, short
from noesium_stream.event.trust.trusted_key import AGENT, TrustedKey

CLIENT: Final = "client"
"""The agent type of people and programs, whose agent ids are their names."""

_NAMED: Final = {
    "approval.answered": "answered_by",
    "effect.resolved": "resolved_by",
    "system.dead_letter.redriven": "redriven_by",
    "system.dead_letter.dropped": "dropped_by",
    "tool.accepted": "accepted_by",
}
"""Fields of payloads that name who decided."""


def principal_of(producer: AgentRef) -> str:
    """The name of a producer: that of a person or program, or `agent:TYPE`."""
    return producer.agent_id if producer.agent_type == CLIENT else AGENT + producer.agent_type


def speakers_of(event: EventEnvelope) -> Iterator[str]:
    """The names in which an event speaks: its producer's, and that of the person who decided."""
    yield principal_of(event.producer)
    field = _NAMED.get(event.event_type)
    name = None if field is None else event.payload.get(field)
    if isinstance(name, str):
        yield name


def decider_of(event: EventEnvelope) -> str:
    """The name in which an event asks for something: that of the person who decided, else its producer's."""
    *_, name = speakers_of(event)
    return name


def owner_of(topic: str) -> str | None:
    """The agent type that owns a topic; None: it is no inbox or journal."""
    parts = topic.split(".")
    return parts[2] if len(parts) >= 4 and parts[1] == "agent" and parts[3] in ("inbox", "journal") else None


def _is_first_inbox(topic: str) -> bool:
    """Whether a topic is the inbox that others write to; later generations end in `.gN`."""
    return topic.endswith(".inbox")


def journal_problem(key: TrustedKey, topic: str) -> str | None:
    """Why a key may not write to a topic at all: a journal is its agent's own; None: it may."""
    owner = owner_of(topic)
    if owner is None or topic.split(".")[3] != "journal" or key.speaks(AGENT + owner):
        return None
    return f"the key {short(key.key_id)} may not speak for {AGENT}{owner}, whose journal it is"


def speaker_problem(key: TrustedKey, topic: str, event: EventEnvelope) -> str | None:
    """Why a key may not say what an event says; None: it may.

    An agent's own workers may put others' events where they copy and forward what they were sent: into its
    journal, and into the inbox of a later generation of its topics. They put tasks that they have taken
    into its first inbox, too.
    """
    owner = owner_of(topic)
    handed_on = not _is_first_inbox(topic) or event.event_type == "task.requested"
    if owner is not None and handed_on and key.speaks(AGENT + owner):
        return None
    for name in speakers_of(event):
        if not key.speaks(name):
            return f"the key {short(key.key_id)} may not speak for {short(name)}"
    return None
