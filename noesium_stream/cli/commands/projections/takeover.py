"""Notes about a projection's other processes (shared partitions), and the takeover by a newer version."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from noesium_stream.cli.commands.projections.shares import is_this_process, left_behind, living, processes
from noesium_stream.cli.output import note
from noesium_stream.errors import EventStoreError, TopicNotFoundError
from noesium_stream.log import EventLog
from noesium_stream.log.port import TopicPartition
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.stored.folder import matching
from noesium_stream.projection.stored.stored_projection import (
    StoredProjection,
    current_version,
    make_current,
    open_stored_projection,
)

_LOOK_S: Final = 0.25
_SETTLED_S: Final = 5.0


async def say_shared(log: EventLog, attached: AttachedProjection) -> None:
    """Name the processes that have the other partitions, as soon as all partitions are assigned."""
    looked_s = 0.0
    while True:
        try:
            shares = await log.members(attached.group)
            layout = await log.layout()
        except EventStoreError:
            pass  # the projection itself reports it
        else:
            topics = matching(layout, attached.projection, log.topology)
            total = sum(layout[topic].partitions for topic in topics)
            others = [share for share in living(shares) if not is_this_process(share)]
            mine = len(attached.assignment)
            taken = {tp for share in others for tp in share.partitions}
            settled = mine > 0 or looked_s >= _SETTLED_S  # there may be more processes than partitions
            if total and settled and mine + len(taken) == total and not taken & attached.assignment:
                if others:
                    note(
                        f"{attached.projection.name} v{attached.projection.version}: shares "
                        f"{total - mine} of {total} partitions with {processes(others)}"
                    )
                return
        await asyncio.sleep(_LOOK_S)
        looked_s += _LOOK_S


async def take_over(log: EventLog, attached: AttachedProjection, folder: Path) -> None:
    """Switch readers to a newer version when it has folded all that was on the log when it was attached."""
    projection = attached.projection
    stored = open_stored_projection(folder, projection.name, projection.version)
    if stored.is_current():
        return
    if _is_older(projection, folder):
        say_older(projection, folder)
        return
    ends = await _ends(log, projection)
    gone: frozenset[TopicPartition] = frozenset()
    while not (attached.assignment and stored.has_reached(attached.assignment, _without(ends, gone))):
        # Other processes on this machine fold some partitions; their files give no signal, so poll.
        before = await _left_behind(log, stored)
        await asyncio.sleep(_LOOK_S)
        gone = before & await _left_behind(log, stored)  # a new owner may not have opened its file yet
    if make_current(folder, projection, unless_older=True):
        note(f"{projection.name} v{projection.version} has caught up, and takes over")


async def _left_behind(log: EventLog, stored: StoredProjection) -> frozenset[TopicPartition]:
    try:
        return await left_behind(log, stored)
    except EventStoreError:
        return frozenset()


def _without(
    ends: Mapping[str, Mapping[int, int]], gone: Collection[TopicPartition]
) -> dict[str, dict[int, int]]:
    """Return the ends without those of these partitions."""
    return {
        topic: {p: end for p, end in found.items() if TopicPartition(topic, p) not in gone}
        for topic, found in ends.items()
    }


async def _ends(log: EventLog, projection: AnyProjection) -> dict[str, Mapping[int, int]]:
    """Return the ends of all topics that the projection folds, as soon as the log answers."""
    while True:
        try:
            topics = [info.name for info in await log.topics()]
            return {topic: await log.end(topic) for topic in matching(topics, projection, log.topology)}
        except EventStoreError as error:
            if not (error.retriable or isinstance(error, TopicNotFoundError)):
                raise
            await asyncio.sleep(_LOOK_S)


def _is_older(projection: AnyProjection, folder: Path) -> bool:
    """Whether readers use a newer version."""
    return projection.version < current_version(folder / projection.name)


def say_older(projection: AnyProjection, folder: Path) -> None:
    """Print that readers use a newer version than this one."""
    newer = current_version(folder / projection.name)
    note(
        f"readers take {projection.name} v{newer}; --rebuild lets v{projection.version} take over again, "
        "--version reads it"
    )
