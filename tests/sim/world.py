"""What lies outside of all processes: it does what effects ask for, and keeps a ledger of it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from random import Random

from tests.sim.loop import here
from tests.support.invariants import Call


class World:
    """Keeps every call that reached it.

    Args:
        chance: how long a call takes, and at which moment of it it is done.

    Attributes:
        calls: the ledger, in the order in which the calls began.
        refusals: how often a call with these words is refused before it is done.
    """

    def __init__(self, chance: Random) -> None:
        self.calls: list[Call] = []
        self.refusals: dict[str, int] = {}
        self._chance = chance

    async def do(self, kind: str, words: str, key: str) -> str:
        """Do it, or refuse it plainly.

        Raises:
            ConnectionRefusedError: it was not done.
        """
        lane, loop = here(), asyncio.get_running_loop()
        call = Call(key, kind, words, lane.name, loop.time())
        self.calls.append(call)
        try:
            await asyncio.sleep(self._pause())
            if self.refusals.get(words, 0) > 0:
                self.refusals[words] -= 1
                call.outcome = "refused"
                raise ConnectionRefusedError(f"{words} is refused")
            call.outcome, call.result = "done", result_of(kind, words)
            if self._chance.random() < 0.5:
                await asyncio.sleep(self._pause())
            return result_of(kind, words)
        finally:
            call.ended_s = loop.time()

    def _pause(self) -> float:
        chance = self._chance.random()
        return 0.0 if chance < 0.2 else chance**6 * 12.0

    def status(self, key: str, alive: set[str]) -> str:
        """What a person finds out about calls of this key: `running`, `done`, `refused` or `none`."""
        calls = [call for call in self.calls if call.key == key]
        if any(call.ended_s is None and call.process in alive for call in calls):
            return "running"
        if any(call.outcome == "done" for call in calls):
            return "done"
        return "refused" if any(call.outcome == "refused" for call in calls) else "none"

    def result(self, key: str) -> str | None:
        """What the call of this key that was done has given."""
        return next((call.result for call in self.calls if call.key == key and call.outcome == "done"), None)


def result_of(kind: str, words: str) -> str:
    """What a call gives: the same for the same words."""
    return f"{kind} {words}"


WORLD: ContextVar[World] = ContextVar("sim_world")
