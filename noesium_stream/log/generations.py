"""The generations of an agent type's topics: a partition count never changes, so an agent type grows by new
topics, `….inbox.g2` and `….journal.g2`.

Decision record. A run lies in one generation, from its command to its outcome. A sender does not have to
know which one: the inbox of the first generation is the door of all generations. An owner there handles the
requests of its own runs. It forwards requests for unknown runs to the next generation, in the commit that
records the forwarding in its journal (`request.forwarded`); the next owner does the same. So the guarantees
within a partition also hold across a growth:

- A command that may arrive twice (its run's id is derived from an idempotency key or a call) goes through the
  door. If its run began before the growth, the owner there knows it, for as long as without a growth.
  Otherwise both copies go to the same partition of the next generation and meet there.
- Everything that is sent to an existing run goes through the door, so it stays in order. Only a command with
  a fresh id, which nobody can have sent before, goes to the newest generation at once.
- A sender that does not know of a growth writes to the door, as everybody does.
- A request that comes through the door for a run of a later generation counts as received when it was
  forwarded. An answer that already lies in the run's own inbox when its owner takes over comes before the
  question's deadline, even if the deadline has passed by then. An answer that still lies at the door does
  not: only the door's owner knows how far that inbox is read.

An owner learns of a growth from its inbox (`partition.outgrown`, written to all partitions in one transaction
before anybody can know the new inbox). So no sender of an earlier record can have known of the growth.
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
    """The open generations, oldest first; none if the agent type has no inbox.

    A generation opens with its inbox, which is made last.

    Raises:
        ConfigError: `agent_type` is not a valid agent type.
    """
    found: list[Generation] = []
    while True:
        number = len(found) + 1
        inbox, journal = topology.inbox(agent_type, number), topology.journal(agent_type, number)
        if inbox not in layout:
            return found
        found.append(Generation(number, inbox, journal, layout[inbox].partitions))


def fitting_spec(topology: Topology, layout: Mapping[str, TopicShape], topic: str) -> TopicSpec:
    """The spec of `Topology.spec`; a new inbox gets as many partitions as its journal has, and a new journal
    as many as its inbox.
    """
    spec = topology.spec(topic)
    head, _, kind = topic.rpartition(".")
    other = layout.get(f"{head}.{'inbox' if kind == 'journal' else 'journal'}")
    fits = spec.kind in (TopicKind.INBOX, TopicKind.JOURNAL) and other is not None
    return replace(spec, partitions=other.partitions) if fits and other is not None else spec


async def generations(log: EventLog, agent_type: str) -> list[Generation]:
    """The generations of `generations_in`, read from the log now; creates missing topics of the first one.

    Raises:
        ConfigError: `agent_type` is not a valid agent type.
        TopicConfigError: as in `ensure_topics`, or a journal has not as many partitions as its inbox.
        LogUnavailableError: no broker answers.
    """
    topology, layout = log.topology, await log.layout()
    inbox = fitting_spec(topology, layout, topology.inbox(agent_type))
    journal = fitting_spec(topology, layout, topology.journal(agent_type))
    if inbox.name not in layout:
        await log.ensure_topics([inbox])
    # The inbox decides: somebody may have created it with another number of partitions.
    count = layout[inbox.name].partitions if inbox.name in layout else len(await log.end(inbox.name))
    await log.ensure_topics([inbox, replace(journal, partitions=count)])
    made = layout[journal.name].partitions if journal.name in layout else len(await log.end(journal.name))
    if made != count:
        # A run is written to the partition number of its command, and looked up by its key.
        raise TopicConfigError(
            f"{journal.name} has {made} partitions and {inbox.name} {count}: they need equally many.",
            hint="Somebody made one of them by itself. Delete the one that is empty: it is made again like "
            "the other one. Or use another namespace.",
        )
    found = generations_in(await log.layout(), topology, agent_type)
    # A broker may report new topics with a short delay.
    return found or [Generation(1, inbox.name, journal.name, count)]


async def open_generations(log: EventLog, agent_type: str) -> list[Generation]:
    """The generations of `generations_in`, read from the log now; creates no topics.

    Raises `LogUnavailableError`.
    """
    return generations_in(await log.layout(), log.topology, agent_type)


def next_specs(
    topology: Topology, agent_type: str, number: int, partitions: int
) -> tuple[TopicSpec, TopicSpec]:
    """Specs of the inbox and journal of generation `number`, created like those of the previous one."""
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
