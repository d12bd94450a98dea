"""Growing an agent type: a new generation of its topics, with more partitions (`log.generations` says why).

Order is the guarantee:
 1. the journal of the new generation is made,
 2. every partition of the newest inbox is told, in one transaction: from here on the growth is a fact, which
    the owners finish if nobody else does,
 3. the inbox of the new generation is made: that opens it to everybody.
Each step may be done again. A growth that ended before step 2 is gone on with by the same command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from noesium_stream.client.runs import ENDED
from noesium_stream.clock import Clock
from noesium_stream.errors import ConfigError, FencedError, LogUnavailableError
from noesium_stream.event.envelope import AgentRef, TraceContext
from noesium_stream.event.standard import PartitionAcquired, PartitionOutgrown
from noesium_stream.log.generations import Generation, generations_in, next_specs
from noesium_stream.log.port import EventLog, Outgoing, TopicShape

_LOOKED_AT: Final = 100


@dataclass(frozen=True, slots=True)
class GenerationInfo:
    """A generation of an agent type, and how many runs in it have begun and not ended."""

    agent_type: str
    generation: int
    partitions: int
    open_runs: int
    inbox: str
    journal: str


async def grow(
    log: EventLog, agent_type: str, partitions: int, clock: Clock, producer: AgentRef
) -> Generation:
    """Open a new generation of an agent type's topics; new runs go there, old ones end where they are.

    Args:
        log: an open log.
        agent_type: whose topics.
        partitions: how many the new generation has, more than the newest one.
        clock: time and ids.
        producer: who does it.

    Raises:
        ConfigError: there is no such agent type, or it reads other topics than an inbox; it has as many
            partitions, or more; another growth was begun and not finished.
        CommitUnknownError, LogFullError, LogUnavailableError: the same call may be made again.
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
    """The generations of these agent types that are open, with their open runs; by agent type and number.

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
    types = ("run.started", *ENDED)
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
        trace = TraceContext(clock.token(16), clock.token(8))
        envelope = event.to_envelope(producer, trace, partition_key=key, clock=clock)
        news.append(Outgoing(envelope, newest.inbox, partition, key))
    writer = await log.writer(f"{newest.inbox}/growth")
    try:
        await writer.commit(news)
    except FencedError as error:
        # Its transaction was ended from outside: it took too long, or somebody else grows the agent now.
        raise LogUnavailableError(
            f"{agent_type} could not be told of its growth: {error.message}", hint="Give the command again."
        ) from error
    finally:
        await writer.close()


async def _refuse_handler(log: EventLog, agent_type: str, layout: Mapping[str, TopicShape]) -> None:
    """A handler has the partitions of the topics that it reads, and its state lies by them.

    Its journal says what it is: the writer of a partition is called by what it reads.
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
