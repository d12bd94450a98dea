"""Distribution of a projection's partitions: those in this folder, and the processes that fold the others."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from noesium_stream.log.port import EventLog, GroupShare, TopicPartition, process_of
from noesium_stream.projection.stored.folder import SUFFIX
from noesium_stream.projection.stored.stored_projection import StoredProjection

_LOCKS: Final = Path("/proc/locks")
_MOST: Final = 5


def is_this_process(share: GroupShare) -> bool:
    """Whether a group member belongs to this process."""
    return process_of(share.member) == f"{socket.gethostname()}/{os.getpid()}"


def living(shares: Iterable[GroupShare]) -> list[GroupShare]:
    """Select members that read partitions, without killed processes of this machine (their leases run on)."""
    return [share for share in shares if share.partitions and not _is_dead(process_of(share.member))]


def _is_dead(process: str) -> bool:
    host, _, pid = process.rpartition("/")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # the process belongs to another user
    return False


def processes(shares: Iterable[GroupShare]) -> str:
    """Format the processes as `HOST/PID, HOST/PID`, each once."""
    found = sorted({process_of(share.member) for share in shares})
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ", ".join(found[:_MOST]) + more


async def elsewhere(log: EventLog, stored: StoredProjection) -> str | None:
    """Describe the partitions that this folder lacks or that others fold now; None: it has all.

    Only topics are known of which this folder or a running process has a part.

    Raises:
        LogUnavailableError
    """
    paths = _paths(stored)
    shares = living(await log.members(stored.about.group))
    topics = {tp.topic for tp in paths} | {tp.topic for share in shares for tp in share.partitions}
    layout = await log.layout()
    wanted = {
        TopicPartition(topic, partition)
        for topic in topics & layout.keys()
        for partition in range(layout[topic].partitions)
    }
    owners = {tp: share for share in shares for tp in share.partitions & wanted}
    others = _folded_elsewhere(owners, paths)
    here = {tp for tp in wanted if tp in paths and tp not in others}
    if here == wanted:
        return None
    who = processes(others.values()) if others else "nobody folds them now"
    name = f"{stored.about.name} v{stored.about.version}"
    return f"{name}: {len(here)} of {len(wanted)} partitions are here; the others: {who}"


async def left_behind(log: EventLog, stored: StoredProjection) -> frozenset[TopicPartition]:
    """Find partitions whose files are still here although processes with other folders have taken them.

    Raises:
        LogUnavailableError
    """
    paths = _paths(stored)
    shares = living(await log.members(stored.about.group))
    owners = {tp: share for share in shares for tp in share.partitions & paths.keys()}
    return frozenset(_folded_elsewhere(owners, paths))


def _folded_elsewhere(
    owners: Mapping[TopicPartition, GroupShare], paths: Mapping[TopicPartition, Path]
) -> dict[TopicPartition, GroupShare]:
    """Select the partitions whose owner does not write the file in this folder."""
    locks = _locked()
    return {
        tp: share
        for tp, share in owners.items()
        if tp not in paths or (locks is not None and _inode(paths[tp]) not in locks)
    }


def _paths(stored: StoredProjection) -> dict[TopicPartition, Path]:
    return {tp: path for path in stored.files() if (tp := _partition(path)) is not None}


def _partition(path: Path) -> TopicPartition | None:
    topic, _, partition = path.name.removesuffix(SUFFIX).rpartition("-")
    return TopicPartition(topic, int(partition)) if topic and partition.isdigit() else None


def _locked() -> frozenset[int] | None:
    """Return the inodes of locked files; None: the system does not tell.

    Trying the locks instead could block a process that is about to start.
    """
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    fields = [line.split() for line in lines]
    return frozenset(
        int(field[5].rpartition(":")[2]) for field in fields if len(field) > 5 and "->" not in field
    )


def _inode(path: Path) -> int | None:
    try:
        return os.stat(f"{path}.lock").st_ino
    except OSError:
        return None
