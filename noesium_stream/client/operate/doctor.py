"""Examines a log for what an operator has to do something about.

What a live worker reports is taken from its heartbeat. The journal of a partition without such a report is
read as its next owner would read it, so that a record that would stop it is found before a worker is started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from noesium_stream.client.client import Client
from noesium_stream.client.operate.dead_letters import dead_letters
from noesium_stream.client.views.workers import OwnedPartition
from noesium_stream.errors import CheckpointError, CorruptRecordError, LogTruncatedError
from noesium_stream.log.generations import generations_in
from noesium_stream.log.port import EventLog
from noesium_stream.worker.state.known_runs import Bounds
from noesium_stream.worker.state.restore import restore

Level = Literal["ok", "warning", "problem"]

_START: Final = "Start a worker that carries the agent: noesium worker --help"
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
    places, well = await client.workers(), 0
    for place in places:
        finding = await _of_partition(client.log, place)
        if finding is None:
            well += 1
        else:
            yield finding
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


async def _of_partition(log: EventLog, place: OwnedPartition) -> Finding | None:
    name = f"{place.topic}/{place.partition}"
    if place.stopped is not None:
        return Finding(
            "problem",
            f"{name} is stopped at {place.owner}: {place.stopped}",
            "Its journal has to be restored from a replica or a backup; then start that worker again. The "
            "worker's other partitions go on.",
        )
    if place.held_up:
        return Finding(
            "warning",
            f"{name}: {_count(place.held_up, 'run')} or requests wait for {', '.join(place.waits_for)}",
            "noesium workers",
        )
    if place.epoch is not None:
        return None
    return await _without_report(log, place, name)


async def _without_report(log: EventLog, place: OwnedPartition, name: str) -> Finding | None:
    """Read the journal of a partition whose owner says nothing, or that has none."""
    known = generations_in(await log.layout(), log.topology, place.agent_type)
    of_topic = [generation for generation in known if generation.inbox == place.topic]
    if not of_topic:
        who = "nobody handles it" if place.owner is None else f"its owner {place.owner} reports nothing"
        return Finding("warning", f"{name}: {who}", _START)
    try:
        open_runs, waiting = await _pending(log, place, of_topic[0].number)
    except _UNREADABLE as error:
        return Finding("problem", f"{name} cannot be taken by a worker: {error.message}", error.hint)
    if not open_runs and not waiting:
        return None
    pending = f"{_count(open_runs, 'open run')}, up to {_count(waiting, 'request')} unread"
    if place.owner is None:
        return Finding("problem", f"{name} has no owner: {pending}", _START)
    return Finding(
        "warning", f"{name}: its owner {place.owner} reports nothing: {pending}", "Look at that process."
    )


async def _pending(log: EventLog, place: OwnedPartition, generation: int) -> tuple[int, int]:
    """Fold a journal partition; return its open runs and the inbox offsets that nobody has read."""
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
        end = (await log.end(place.topic))[place.partition]
        return len(state.open), max(0, end - state.inbox_until)
    finally:
        state.file.close()


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
