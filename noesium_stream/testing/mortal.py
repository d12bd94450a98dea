"""A killable process within the test's process: its log and its clock stop at one commit.

What a worker has written before its death stays. After it, nothing of it reaches the log, and none of its
timers fires: the same as after SIGKILL. The order is the guarantee:
1. The chosen commit, and every later one, waits: no node sees its result and continues.
2. The subscription is closed; the handlers of its records and the runs are cancelled.
3. Only then the commits end as refused: no task is left that could react.

The thread of a sync node cannot be cancelled; it ends by itself, and its result is ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from noesium_stream.clock import Clock
from noesium_stream.errors import FencedError, LogUnavailableError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import (
    EventLog,
    Handler,
    OnRevoked,
    Outgoing,
    Position,
    Subscription,
    Tenure,
    TopicPartition,
)
from noesium_stream.log.record import Record
from noesium_stream.testing.hooked import Commit, HookedLog

When = Callable[[EventEnvelope], bool]
"""Selects the event whose commit kills the process; called once per event, so it may count."""

_TURNS: Final = 5


class Death:
    """The death of a process, shared by its log and its clock.

    Attributes:
        struck: the chosen commit has arrived; nothing of the process continues.
        buried: its runs are cancelled; waiting commits may end.
    """

    def __init__(self) -> None:
        self.struck = asyncio.Event()
        self.buried = asyncio.Event()


class MortalLog(HookedLog):
    """A process's log; the process dies at the first commit with an event that `when` selects.

    With `reaches_log` that commit is the last one on the log, otherwise the first that is lost.
    """

    def __init__(self, inner: EventLog, death: Death) -> None:
        super().__init__(inner, self._commit)
        self._death = death
        self.when: When | None = None
        self.reaches_log = True

    async def writer(self, writer_id: str, *, tenure: Tenure | None = None) -> Any:
        """As `EventLog.writer`; a dead process waits for it forever."""
        if self._death.struck.is_set():
            await asyncio.Event().wait()
        return await super().writer(writer_id, tenure=tenure)

    async def append(self, envelopes: Sequence[EventEnvelope], *, topic: str | None = None) -> list[Position]:
        """As `EventLog.append`."""
        if self._death.struck.is_set():
            raise LogUnavailableError("this process was killed by its test")
        return await self.inner.append(envelopes, topic=topic)

    async def subscribe(
        self,
        group: str,
        topics: Sequence[str],
        handler: Handler,
        *,
        on_revoked: OnRevoked | None = None,
        **options: Any,
    ) -> Subscription:
        """As `EventLog.subscribe`."""

        async def handle(records: Sequence[Record]) -> None:
            await self._until_death(handler(records))

        async def revoked(partitions: frozenset[TopicPartition]) -> None:
            if on_revoked is None:
                return
            leaving = asyncio.ensure_future(on_revoked(partitions))
            struck = asyncio.create_task(self._death.struck.wait())
            try:
                # The last commits of a process that leaves may be what kills it.
                await asyncio.wait([leaving, struck], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                leaving.cancel()
                raise
            finally:
                struck.cancel()
            if self._death.struck.is_set():
                for _ in range(_TURNS):  # let the runs be cancelled
                    await asyncio.sleep(0)
                self._death.buried.set()
            await leaving

        return await self.inner.subscribe(group, topics, handle, on_revoked=revoked, **options)

    async def _until_death(self, handling: Awaitable[None]) -> None:
        handled = asyncio.ensure_future(handling)
        struck = asyncio.create_task(self._death.struck.wait())
        try:
            await asyncio.wait([handled, struck], return_when=asyncio.FIRST_COMPLETED)
            if handled.done():
                handled.result()
        finally:
            handled.cancel()
            struck.cancel()

    async def _commit(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        death = self._death
        if not death.struck.is_set() and self._strikes(outgoing):
            if self.reaches_log:
                await commit(outgoing)
            death.struck.set()
        if death.struck.is_set():
            await death.buried.wait()
            raise FencedError("this process was killed by its test")
        return await commit(outgoing)

    def _strikes(self, outgoing: Sequence[Outgoing]) -> bool:
        if self.when is None:
            return False
        seen: set[str] = set()
        struck = False
        for record in outgoing:
            # An event for another inbox is in the journal too, with the same id.
            if record.envelope.event_id not in seen:
                seen.add(record.envelope.event_id)
                struck = self.when(record.envelope) or struck
        return struck


class MortalClock:
    """A clock whose sleepers never wake after the process has died."""

    def __init__(self, inner: Clock, death: Death) -> None:
        self._inner = inner
        self._death = death

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return self._inner.now_ms()

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self._inner.monotonic()

    def uuid7(self) -> str:
        """See `Clock.uuid7`."""
        return self._inner.uuid7()

    def token(self, size: int) -> str:
        """See `Clock.token`."""
        return self._inner.token(size)

    def random(self) -> float:
        """See `Clock.random`."""
        return self._inner.random()

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        if self._death.struck.is_set():
            await asyncio.Event().wait()
        await self._inner.sleep(seconds)
        if self._death.struck.is_set():
            await asyncio.Event().wait()
