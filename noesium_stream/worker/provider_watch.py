"""Waiting for providers: one task follows the registry while any run of the agent waits for one.

A run that waits for a provider is like one that waits for an answer: it has no thread and no slot, and may be
evicted. The task is the only one that asks the log. It wakes the runs whose capability has a provider now;
these choose again, and a run that was woken in vain waits again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from noesium_stream.capabilities import resolution
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.kernel.journal import Wanted


class ProviderWatch:
    """The runs of one agent in this process that wait for providers.

    Args:
        registry: registry of the capabilities that agents offer.
        on_failure: called with the error if the registry cannot be read any more.
    """

    def __init__(self, registry: CapabilityRegistry, on_failure: Callable[[BaseException], None]) -> None:
        self._registry = registry
        self._on_failure = on_failure
        self._waits: dict[str, tuple[set[Wanted], Callable[[str], None]]] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waits)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._waits

    def offers(self, wanted: Wanted) -> bool:
        """Whether somebody offers what is wanted, as far as the registry was read."""
        return self._registry.selected(asked_of_registry(wanted)) is not None

    def add(self, run_id: str, wanted: Wanted, on_offered: Callable[[str], None]) -> None:
        """Call `on_offered` with the run's id, once, when somebody offers what it wants."""
        wants, _ = self._waits.setdefault(run_id, (set(), on_offered))
        wants.add(wanted)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow(), name="follow the registry")

    def drop(self, run_id: str) -> None:
        """Forget a run; harmless when repeated."""
        self._waits.pop(run_id, None)

    async def close(self) -> None:
        """Forget all runs."""
        self._waits.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        try:
            while self._waits:
                seen = self._registry.offset
                self._wake()
                if self._waits:
                    await self._registry.changed(after=seen)
        except Exception as error:
            self._on_failure(error)

    def _wake(self) -> None:
        offered: dict[Wanted, bool] = {}
        for run_id, (wants, on_offered) in list(self._waits.items()):
            for wanted in wants:
                key = wanted._replace(run_id="", call_id="")
                if key not in offered:
                    offered[key] = self.offers(wanted)
                if offered[key]:
                    self.drop(run_id)
                    on_offered(run_id)
                    break


def asked_of_registry(wanted: Wanted) -> resolution.Wanted:
    """What the registry is asked for a call."""
    return resolution.Wanted(
        wanted.capability_id,
        wanted.version_range,
        run_id=wanted.run_id,
        roles=wanted.roles,
        scopes=wanted.scopes,
        without=wanted.tried,
    )
