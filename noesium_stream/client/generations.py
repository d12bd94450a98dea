"""Growth of an agent type: a new generation of its topics, with more partitions (see `log.generations`).

Order is the guarantee:
 1. Create the journal of the new generation.
 2. Tell every partition of the newest inbox, in one transaction. From here on the growth is a fact: the
    owners finish it if nobody else does.
 3. Create the inbox of the new generation, which opens it to all clients.
Each step may be repeated. A growth that was interrupted before step 2 is continued by the same command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import ConfigError, FencedError, LogUnavailableError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.standard import PartitionAcquired, PartitionOutgrown
from noesium_stream.log.generations import Generation, generations_in, next_specs
from noesium_stream.log.port import EventLog, Outgoing, TopicShape

_LOOKED_AT: Final = 100


@dataclass(frozen=True, slots=True)
class GenerationInfo:
    """A generation of an agent type, and the number of its open runs."""

    agent_type: str
    generation: int
    partitions: int
    open_runs: int
    inbox: str
    journal: str


async def grow(
    log: EventLog, agent_type: str, partitions: int, clock: Clock, producer: AgentRef
) -> Generation:
    """Open a new generation of an agent type's topics: new runs go there, old ones end where they are.

    Args:
        log: an open log.
        agent_type: the agent type to grow.
        partitions: partitions of the new generation, more than the newest one has.
        clock: source of time and ids.
        producer: the producer of the record that announces the growth.

    Raises:
        ConfigError: there is no such agent type, it is a handler, it has that many partitions or more
            already, or another growth was started and not finished.
        CommitUnknownError, LogFullError, LogUnavailableError: the same call may be repeated.
    """
    topology = log.topology
    layout = await log.layout()
    found = generations_in(layout, topology, agent_type)
    await _refuse_handler(log, agent_type, layout)
    if not found:
        raise ConfigError(
            f"There are no agents of type {agent_type} on {log.url}.",
            hint="`noesium topics` lists what there is; topics are made when a worker or a command comes.",
        )
    newest = found[-1]
    inbox, journal = next_specs(topology, agent_type, newest.number + 1, partitions)
    begun = layout.get(journal.name)
    if begun is not None and begun.partitions != partitions:
        raise ConfigError(
            f"{agent_type} is being grown to {begun.partitions} partitions, and that was not finished.",
            hint=f"Finish it first: noesium topics grow {agent_type} --partitions {begun.partitions}",
        )
    if partitions <= newest.partitions:
        fewer = "" if partitions == newest.partitions else f"; it cannot shrink to {partitions}"
        raise ConfigError(
            f"{agent_type} has {newest.partitions} partitions already, in generation {newest.number}{fewer}.",
            hint="It can only grow: give more partitions.",
        )
    await log.ensure_topics([journal])
    made = (await log.layout())[journal.name].partitions
    if made != partitions:
        raise ConfigError(f"{agent_type} was just grown to {made} partitions by somebody else.")
    await _tell(log, newest, agent_type, partitions, clock, producer)
    await log.ensure_topics([inbox])
    return Generation(newest.number + 1, inbox.name, journal.name, partitions)


async def generation_infos(log: EventLog, agent_types: Iterable[str]) -> list[GenerationInfo]:
    """List the open generations of these agent types with their open runs, by agent type and number.

    Raises:
        LogUnavailableError
    """
    layout = await log.layout()
    found = []
    for agent_type in sorted(agent_types):
        for one in generations_in(layout, log.topology, agent_type):
            runs = await _open_runs(log, one.journal) if one.journal in layout else 0
            found.append(GenerationInfo(agent_type, one.number, one.partitions, runs, one.inbox, one.journal))
    return found


async def _open_runs(log: EventLog, journal: str) -> int:
    open_: set[str] = set()
    types = ("run.started", *ENDINGS)
    async for record in log.read(journal, {}, until=await log.end(journal), types=types):
        if record.event_type == "run.started":
            open_.add(record.key)
        else:
            open_.discard(record.key)
    return len(open_)


async def _tell(
    log: EventLog, newest: Generation, agent_type: str, partitions: int, clock: Clock, producer: AgentRef
) -> None:
    news = []
    for partition in range(newest.partitions):
        key = f"partition-{partition}"
        event = PartitionOutgrown(
            agent_type=agent_type,
            partition=partition,
            generation=newest.number + 1,
            partitions=partitions,
        )
        envelope = root_event(event, producer, clock, partition_key=key)
        news.append(Outgoing(envelope, newest.inbox, partition, key))
    writer = await log.writer(f"{newest.inbox}/growth")
    try:
        await writer.commit(news)
    except FencedError as error:
        # The transaction was ended by another process or by its time limit.
        raise LogUnavailableError(
            f"{agent_type} could not be told of its growth: {error.message}", hint="Give the command again."
        ) from error
    finally:
        await writer.close()


async def _refuse_handler(log: EventLog, agent_type: str, layout: Mapping[str, TopicShape]) -> None:
    """Refuse to grow a handler: it has the partitions of the topics that it reads, and so has its state.

    Its journal shows that it is a handler: the writer of a partition has the name of the topic that it reads.
    """
    journal = log.topology.journal(agent_type)
    if journal not in layout:
        return
    ends, firsts = await log.end(journal), await log.beginning(journal)
    until = {partition: min(end, firsts[partition] + _LOOKED_AT) for partition, end in ends.items()}
    async for record in log.read(journal, firsts, until=until, types=(PartitionAcquired.TYPE,)):
        reads = record.envelope.payload["writer_id"].removeprefix(f"{journal}/").rpartition("/")[0]
        if reads:
            raise ConfigError(
                f"{agent_type} is a handler: it has the partitions of the topics that it reads ({reads}).",
                hint="Its state lies by their partitions, by key: more partitions would part a key from its "
                "state. Grow the agents whose journals it reads; for topics of facts use a new namespace.",
            )
