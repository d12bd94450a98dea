"""The generations of an agent type's topics: a partition count never changes, so an agent type grows by new
topics, `….inbox.g2` and `….journal.g2`.

Decision record. A run lies in one generation, from its command to its outcome. Who sends does not have to
know in which: the inbox of the first generation is the door of all. An owner there deals with what is its
own; what it does not know goes on to the next generation, in the commit that says so in its journal
(`request.forwarded`), and so on. Hence what holds within a partition holds across a growth:

- A command that may come twice (its run's id is derived, from an idempotency key or a call) goes through the
  door. If its run began before the growth, the owner there knows it, for as long as it would have without;
  otherwise both go on to the same partition of the next generation, and meet there.
- All that is sent to a run that is there goes through the door, so it stays in order. Only a command with a
  fresh id, which nobody can have sent before, goes to the newest generation at once.
- Who does not know of a growth writes to the door, as everybody does.
- What comes through the door for a run of a later generation has come when it was handed on. An answer that
  lies in the run's own inbox when its owner comes is ahead of the question's deadline, though that has passed
  by then; one that still lies at the door is not: how far that is read its owner alone knows.

An owner learns of a growth from its inbox (`partition.outgrown`, written to all partitions in one transaction
before anybody can know the new inbox): nobody who sent what lies before it can have known of the growth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from noesium_stream.errors import TopicConfigError
from noesium_stream.log.port import EventLog, TopicShape
from noesium_stream.log.topics import TopicKind, TopicSpec, Topology


class Generation(NamedTuple):
    """One generation of an agent type: topics with `partitions` partitions each; `number` counts from 1."""

    number: int
    inbox: str
    journal: str
    partitions: int


def generations_in(layout: Mapping[str, TopicShape], topology: Topology, agent_type: str) -> list[Generation]:
    """Those that are open, the first one first; none where the agent type has no inbox.

    A generation opens with its inbox, which is made last.

    Raises:
        ConfigError: `agent_type` is no agent type.
    """
    found: list[Generation] = []
    while True:
        number = len(found) + 1
        inbox, journal = topology.inbox(agent_type, number), topology.journal(agent_type, number)
        if inbox not in layout:
            return found
        found.append(Generation(number, inbox, journal, layout[inbox].partitions))


def fitting_spec(topology: Topology, layout: Mapping[str, TopicShape], topic: str) -> TopicSpec:
    """As `Topology.spec`; an inbox that is made new gets as many partitions as its journal has, and a journal
    as its inbox.
    """
    spec = topology.spec(topic)
    head, _, kind = topic.rpartition(".")
    other = layout.get(f"{head}.{'inbox' if kind == 'journal' else 'journal'}")
    fits = spec.kind in (TopicKind.INBOX, TopicKind.JOURNAL) and other is not None
    return replace(spec, partitions=other.partitions) if fits and other is not None else spec


async def generations(log: EventLog, agent_type: str) -> list[Generation]:
    """As `generations_in`, of a log as it is now; topics of the first one that are missing are made.

    Raises:
        ConfigError: `agent_type` is no agent type.
        TopicConfigError: also where a journal has not as many partitions as its inbox.
        LogUnavailableError: nobody answers.
    """
    topology, layout = log.topology, await log.layout()
    inbox = fitting_spec(topology, layout, topology.inbox(agent_type))
    journal = fitting_spec(topology, layout, topology.journal(agent_type))
    if inbox.name not in layout:
        await log.ensure_topics([inbox])
    # The inbox decides: somebody who wants another number of partitions may have made it.
    count = layout[inbox.name].partitions if inbox.name in layout else len(await log.end(inbox.name))
    await log.ensure_topics([inbox, replace(journal, partitions=count)])
    made = layout[journal.name].partitions if journal.name in layout else len(await log.end(journal.name))
    if made != count:
        # A run is written to the partition of its command's number, and looked for by its key.
        raise TopicConfigError(
            f"{journal.name} has {made} partitions and {inbox.name} {count}: they need equally many.",
            hint="Somebody made one of them by itself. Delete the one that is empty: it is made again like "
            "the other one. Or use another namespace.",
        )
    found = generations_in(await log.layout(), topology, agent_type)
    # A broker may be a moment late to tell of topics that were just made.
    return found or [Generation(1, inbox.name, journal.name, count)]


async def open_generations(log: EventLog, agent_type: str) -> list[Generation]:
    """As `generations_in`, of a log as it is now: nothing is made, so that who only looks leaves no trace.

    Raises `LogUnavailableError`.
    """
    return generations_in(await log.layout(), log.topology, agent_type)


def next_specs(
    topology: Topology, agent_type: str, number: int, partitions: int
) -> tuple[TopicSpec, TopicSpec]:
    """Inbox and journal of generation `number`, to be made like those of the one before."""
    inbox = TopicSpec(
        topology.inbox(agent_type, number),
        TopicKind.INBOX,
        partitions,
        topology.spec(topology.inbox(agent_type)).retention_ms,
        like=topology.inbox(agent_type, number - 1),
    )
    journal = TopicSpec(
        topology.journal(agent_type, number),
        TopicKind.JOURNAL,
        partitions,
        None,
        like=topology.journal(agent_type, number - 1),
    )
    return inbox, journal
