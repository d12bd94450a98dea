"""How a partition stands, as its owner's signs of life say it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from noesium_stream.event.standard import GraphRef, PartitionStatus
from noesium_stream.log.topics import generation_of
from noesium_stream.worker.kept import KeptRequests
from noesium_stream.worker.releases import named
from noesium_stream.worker.session import RunSession

SHOWN: Final = 3
"""So much of what parked runs wait for is in a sign of life."""


def status_of(
    inbox: str,
    partition: int,
    epoch: int,
    dealt_with: int,
    open_runs: int,
    loaded: Collection[RunSession],
    kept: KeptRequests | None,
) -> PartitionStatus:
    """What is said of a partition.

    Args:
        inbox: its topic.
        partition: its number.
        epoch: of its writer.
        dealt_with: all below this offset of the inbox is.
        open_runs: how many there are.
        loaded: those in memory.
        kept: the parked requests.
    """
    left = _left_alone(loaded)
    reasons = [why.removeprefix("it waits for ") for why in kept.reasons(SHOWN)] if kept else []
    at_work = [session.last_ms for session in loaded if session.begun and not session.activity.only_waits]
    return PartitionStatus(
        partition=partition,
        epoch=epoch,
        next_offset=dealt_with,
        open_runs=open_runs,
        oldest_step_ms=min(at_work, default=None),
        topic=None if generation_of(inbox) == 1 else inbox,
        parked=sum(left.values()) + (len(kept) if kept is not None else 0),
        waits_for=[*left, *reasons][:SHOWN],
    )


def _left_alone(loaded: Collection[RunSession]) -> Counter[str]:
    """The versions of runs that nobody here can go on with."""
    return Counter(
        named(GraphRef.model_validate(session.history.pinned))
        for session in loaded
        if session.history.parked is not None and session.task is None
    )
