"""A log that holds the first commit with an outcome until a test says what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit


class HoldingLog(HookedLog):
    """The first commit with this outcome waits for `go`, then fails with `error` where there is one.

    So does every later commit of the same event: what is refused once is refused again.
    """

    def __init__(self, inner: EventLog, error: Exception | None, outcome: str = "run.completed") -> None:
        super().__init__(inner, self._commit)
        self.error = error
        self.outcome = outcome
        self.held = asyncio.Event()
        self._failing: str | None = None
        self.go = asyncio.Event()

    async def _commit(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        found = [o.envelope.event_id for o in outgoing if o.envelope.event_type == self.outcome]
        if found and not self.held.is_set():
            self.held.set()
            self._failing = found[0]
            await self.go.wait()
        if self.error is not None and self._failing in found:
            raise self.error
        return await commit(outgoing)
