"""A partition that is given up in order: what its runs do outside ends, and is recorded, before it goes.

Until `release` returns the owner is the owner, and its writer writes. So it begins nothing new, and lets the
effects (and calls of models) that are under way come to their record. Runs that only wait, and nodes between
effects, are not waited for: they lose nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from noesium_stream.kernel.activity import Activity

GRACE_S: Final = 8.0
"""A process that is told to end has 10 s at most places. It is less than what a group waits for a member
that gives partitions up: Kafka's `max.poll.interval.ms` is 300 s, and heartbeats go on beside it, as embedded
groups renew their lease."""


async def let_calls_end(
    activities: Iterable[Activity], grace_s: float, lost: asyncio.Event, progress: Callable[[str], None]
) -> None:
    """Let nothing begin any more, and wait for what is under way, at most `grace_s` of the loop's time.

    Args:
        activities: of the runs.
        grace_s: in seconds; 0: nothing is waited for.
        lost: set when the writer is lost, and with it the sense in waiting.
        progress: takes a line for people.
    """
    activities = list(activities)
    for activity in activities:
        activity.shut()
    calls = sum(activity.calls for activity in activities)
    if not calls or grace_s <= 0 or lost.is_set():
        return
    progress(f"waiting for {_named(calls)} under way, for {grace_s:g} s at most")
    ended = asyncio.ensure_future(asyncio.gather(*(activity.calls_ended() for activity in activities)))
    gone = asyncio.ensure_future(lost.wait())
    try:
        await asyncio.wait((ended, gone), timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in (ended, gone):
            waiting.cancel()
        await asyncio.gather(ended, gone, return_exceptions=True)
    left = sum(activity.calls for activity in activities)
    if left:
        progress(f"{_named(left)} did not end in time: what came of it the next owner does not know")


def _named(calls: int) -> str:
    return "1 effect" if calls == 1 else f"{calls} effects"
