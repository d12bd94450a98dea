"""Examines a log for what an operator has to do something about.

What a live worker reports is taken from its heartbeat. The journal of a partition without such a report is
read as its next owner would read it, so that a record that would stop it is found before a worker is started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from noesium_stream.client.client import Client
from noesium_stream.client.operate.dead_letters import dead_letters
from noesium_stream.client.views.workers import OwnedPartition
from noesium_stream.errors import CheckpointError, CorruptRecordError, LogTruncatedError
from noesium_stream.log.generations import generations_in
from noesium_stream.log.port import EventLog
from noesium_stream.worker.progress_lines import ranges
from noesium_stream.worker.state.known_runs import Bounds
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.restore import restore

Level = Literal["ok", "warning", "problem"]

_UNREADABLE: Final = (CheckpointError, CorruptRecordError, LogTruncatedError)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found.

    Attributes:
        level: `problem`: something does not work; `warning`: somebody should look; `ok`: nothing to do.
        what: what was found, and where.
        hint: what to do about it.
    """

    level: Level
    what: str
    hint: str | None = None


async def examine(client: Client) -> AsyncIterator[Finding]:
    """Check the partitions, dead letters and undecided effects of a log; yield what is found.

    Raises `LogUnavailableError`.
    """
    places = await client.workers()
    alike: dict[tuple[str, _Found], list[int]] = {}
    for place in places:
        found = await _of_partition(client.log, place)
        if found is not None:
            alike.setdefault((place.topic, found), []).append(place.partition)
    for (topic, found), partitions in alike.items():
        yield Finding(found.level, f"{topic}/{ranges(partitions)}{found.what}", found.hint)
    well = len(places) - sum(map(len, alike.values()))
    yield Finding("ok", f"{_count(well, 'partition')} of agents: at work, or nothing to do")
    letters = Counter(one.agent_type for one in await dead_letters(client.log) if one.status == "open")
    for agent_type, count in sorted(letters.items()):
        yield Finding(
            "warning",
            f"{_count(count, 'dead letter')} of agents of type {agent_type} without a decision",
            f"noesium dlq list agent:{agent_type}",
        )
    effects = await client.unresolved_effects()
    if effects:
        yield Finding("warning", f"{_count(len(effects), 'effect')} of unknown outcome", "noesium effects")


class _Found(NamedTuple):
    """What was found about a partition; `what` follows its name."""

    level: Level
    what: str
    hint: str | None


async def _of_partition(log: EventLog, place: OwnedPartition) -> _Found | None:
    if place.stopped is not None:
        return _Found(
            "problem",
            f" is stopped at {place.owner}: {place.stopped}",
            "Its journal has to be restored from a replica or a backup; then start that worker again. The "
            "worker's other partitions go on.",
        )
    if place.held_up:
        waits = f"{_count(place.held_up, 'run')} or requests wait for {', '.join(place.waits_for)}"
        return _Found("warning", f": {waits}", "noesium workers")
    if place.epoch is not None:
        return None
    return await _without_report(log, place)


async def _without_report(log: EventLog, place: OwnedPartition) -> _Found | None:
    """Read the journal of a partition whose owner says nothing, or that has none."""
    known = generations_in(await log.layout(), log.topology, place.agent_type)
    of_topic = [generation for generation in known if generation.inbox == place.topic]
    start = f"Start a worker of {place.agent_type}: noesium worker --help"
    silent = f": its owner {place.owner} reports nothing"
    if not of_topic:
        nobody = f": {place.agent_type} handles it, and has no worker"
        return _Found("warning", nobody if place.owner is None else silent, start)
    try:
        open_runs, waiting = await _pending(log, place, of_topic[0].number)
    except _UNREADABLE as error:
        return _Found("problem", f" cannot be taken by a worker: {error.message}", error.hint)
    if not open_runs and not waiting:
        return None
    runs = [_count(open_runs, "open run")] if open_runs else []
    pending = ", ".join([*runs, *([f"up to {_count(waiting, 'request')} unread"] if waiting else [])])
    if place.owner is None:
        return _Found("problem", f" has no owner: {pending}", start)
    return _Found("warning", f"{silent}: {pending}", "Look at that process.")


async def _pending(log: EventLog, place: OwnedPartition, generation: int) -> tuple[int, int]:
    """Fold a journal partition; return its open runs, and the requests that no owner has read.

    A request to a run that has ended changes nothing, and does not count: an owner that has read it does not
    journal that.
    """
    nowhere = Path()  # the state is kept in memory
    state = await restore(
        log,
        nowhere,
        place.agent_type,
        place.partition,
        Bounds(),
        lambda line: None,
        generation=generation,
        in_file=False,
    )
    try:
        return len(state.open), await _unread(log, place, state)
    finally:
        state.file.close()


async def _unread(log: EventLog, place: OwnedPartition, state: PartitionState) -> int:
    only = (place.partition,)
    first = max(state.inbox_until, (await log.beginning(place.topic))[place.partition])
    until = {place.partition: (await log.end(place.topic))[place.partition]}
    unread = 0
    async for record in log.read(place.topic, {place.partition: first}, until=until, partitions=only):
        unread += not state.has_ended(record.key)
    return unread


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
