"""External calls, which may outlast the stay of their run in this process.

A call cannot be taken back. If its run is given up in its middle (the partition goes to another process),
cancelling the call would only lose its outcome. So an external call runs in a task of its own, and continues
when the run's own tasks end; its outcome is reported to the run's heir. A call that is safe to repeat is
cancelled: the next owner calls again at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from noesium_stream.kernel.activity import Activity


class Ended(NamedTuple):
    """How a call ended: with a value, or with what it raised.

    `expired`: its time limit passed; `made`: it began at all.
    """

    value: Any = None
    raised: BaseException | None = None
    expired: bool = False
    made: bool = True


class _NotBegunError(Exception):
    """A thread got its turn when the run's owner was no longer known; never leaves this module."""


async def make(call: Callable[[], Awaitable[Any]], timeout_s: float | None) -> Ended:
    """Call and await in the caller's task, for at most `timeout_s` seconds."""
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            value = await call()
    except GeneratorExit:
        raise
    except BaseException as raised:
        return Ended(None, raised, limit.expired())
    return Ended(value, None, limit.expired())


async def make_assured(
    call: Callable[[], Awaitable[Any]], timeout_s: float | None, activity: Activity
) -> Ended:
    """As `make`, once it is known that this process still owns the run.

    The process may have stood still since the intent. Then another process owns the run, may have called and
    undone the call's effect, and a person may have decided already. Nothing yields between this check and the
    call; a call in a thread, which may have waited for its turn, checks again there (`in_thread`).
    """
    while True:
        if activity.assured is not None:
            try:
                await activity.assured()
            except GeneratorExit:
                raise
            except BaseException as raised:
                return Ended(None, raised, made=False)
        ended = await make(call, timeout_s)
        if not isinstance(ended.raised, _NotBegunError):
            return ended


async def in_thread(call: Callable[[], Any], activity: Activity) -> Any:
    """Call a sync function in a thread, unless the run may have been lost while it waited for one."""

    def begin() -> Any:
        if not activity.owned():
            raise _NotBegunError
        return call()

    return await asyncio.to_thread(begin)


async def carry(making: Awaitable[Ended], activity: Activity, left: Callable[[Ended], None]) -> Ended:
    """Await a call in a task of its own, which continues if the run is given up meanwhile.

    Args:
        making: the result of `make_assured`.
        activity: the run's activity.
        left: called with the end of the call if nobody here waits for it any more.
    """
    work = asyncio.ensure_future(making)
    try:
        await asyncio.wait((work,))
    except asyncio.CancelledError as cancelled:
        if not work.done():
            if activity.heir is not None:
                activity.heir.keep(work)
                work.add_done_callback(partial(_tell, left))
                raise
            work.cancel(*cancelled.args)
            await asyncio.wait((work,))
        return _cancelled_behind(work.result(), *cancelled.args)
    return work.result()


async def stay(making: Awaitable[Ended]) -> Ended:
    """Await a call in the caller's task, where it ends with its run.

    Args:
        making: the result of `make` or `make_assured`.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    ended = await making
    return ended if task is None or task.cancelling() <= before else _cancelled_behind(ended)


def _cancelled_behind(ended: Ended, *args: Any) -> Ended:
    """The value of a call that ended at the moment of a cancellation, or took the cancellation for its own
    (`asyncio.wait_for` of Python 3.11 may lose one): the value is kept, and the cancellation follows right
    behind.
    """
    task = asyncio.current_task()
    if task is not None and not isinstance(ended.raised, asyncio.CancelledError):
        task.uncancel()
        task.cancel(*args)
    return ended


def _tell(left: Callable[[Ended], None], done: asyncio.Future[Ended]) -> None:
    if not done.cancelled():
        left(done.result())
