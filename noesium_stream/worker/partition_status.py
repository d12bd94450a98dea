"""Status of an owned partition in heartbeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from noesium_stream.event.standard import GraphRef, PartitionStatus
from noesium_stream.log.topics import generation_of
from noesium_stream.worker.graph_versions import named
from noesium_stream.worker.inbox.deferred_requests import DeferredRequests
from noesium_stream.worker.runs.run_session import RunSession

SHOWN: Final = 3
"""Upper bound of the reasons to wait in a heartbeat."""


def status_of(
    inbox: str,
    partition: int,
    epoch: int,
    dealt_with: int,
    open_runs: int,
    loaded: Collection[RunSession],
    deferred: DeferredRequests,
) -> PartitionStatus:
    """Make the status of a partition.

    Args:
        inbox: inbox topic.
        partition: number of the partition.
        epoch: epoch of its writer.
        dealt_with: inbox offset below which all records are dealt with.
        open_runs: number of open runs.
        loaded: the open runs in memory.
        deferred: the deferred requests.
    """
    left = _left_alone(loaded)
    reasons = [why.removeprefix("it waits for ") for why in deferred.reasons(SHOWN)]
    at_work = [session.last_ms for session in loaded if session.begun and not session.activity.only_waits]
    return PartitionStatus(
        partition=partition,
        epoch=epoch,
        next_offset=dealt_with,
        open_runs=open_runs,
        oldest_step_ms=min(at_work, default=None),
        topic=None if generation_of(inbox) == 1 else inbox,
        parked=sum(left.values()) + len(deferred),
        waits_for=[*left, *reasons][:SHOWN],
    )


def _left_alone(loaded: Collection[RunSession]) -> Counter[str]:
    """Count stranded runs by the graph version that they wait for."""
    return Counter(
        named(GraphRef.model_validate(session.history.pinned))
        for session in loaded
        if session.history.stranded is not None and session.task is None
    )
