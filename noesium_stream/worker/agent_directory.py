"""Directory of other agents: the providers that a run may call, and their inboxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.clock import Clock
from noesium_stream.errors import CapabilityNotFoundError, LogUnavailableError
from noesium_stream.kernel import Provider
from noesium_stream.log.port import EventLog
from noesium_stream.observability import capability_resolution_duration
from noesium_stream.worker.progress_lines import LOG_ANSWERS, waiting_for_log

RESOLVE_PATIENCE_S: Final = 15.0
"""How long to wait for a provider that is just starting, in seconds."""

_PAUSE_S: Final = 0.25


class Directory:
    """Finds providers and inboxes; waits while the log is unavailable.

    Args:
        log: the log that has the topics.
        registry: registry of the capabilities that agents offer.
        clock: clock of the waits.
        progress: takes one line for people.
    """

    def __init__(
        self, log: EventLog, registry: CapabilityRegistry, clock: Clock, progress: Callable[[str], None]
    ) -> None:
        self._log = log
        self._registry = registry
        self._clock = clock
        self._progress = progress
        self._inboxes: dict[str, tuple[str, int]] = {}

    def inbox_of(self, agent_type: str) -> tuple[str, int]:
        """Return an agent type's inbox and its number of partitions; call `learn_inbox` before."""
        return self._inboxes[agent_type]

    async def learn_inbox(self, agent_type: str) -> None:
        """Look up an agent type's inbox, so that `inbox_of` knows it; create a missing one."""
        inbox, waited = self._log.topology.inbox(agent_type), False
        while agent_type not in self._inboxes:
            try:
                await self._log.ensure_topics([self._log.topology.spec(inbox)])
                self._inboxes[agent_type] = inbox, len(await self._log.end(inbox))
            except LogUnavailableError as error:
                waited = True
                await self.wait_for_log(error)
        if waited:
            self._progress(LOG_ANSWERS)

    async def resolve(self, capability_id: str, version_range: str | None, run_id: str) -> Provider:
        """See `RunJournal.resolve`; waits a little for a provider that is just starting.

        Runs are spread over providers by `run_id`, the caller's.
        """
        begun, waited = self._clock.monotonic(), False
        while True:
            try:
                entry = await self._registry.resolve(capability_id, version_range, run_id=run_id)
                break
            except CapabilityNotFoundError:
                if self._clock.monotonic() >= begun + RESOLVE_PATIENCE_S:
                    self._measured(capability_id, begun, "unresolved")
                    raise
                await self._clock.sleep(_PAUSE_S)
            except LogUnavailableError as error:
                waited = True
                await self.wait_for_log(error)
        if waited:
            self._progress(LOG_ANSWERS)
        self._measured(capability_id, begun, "resolved")
        await self.learn_inbox(entry.agent_type)
        capability = entry.capability
        return Provider(
            entry.agent_id, entry.agent_type, capability.id, capability.version, self._registry.offset
        )

    def _measured(self, capability_id: str, begun: float, outcome: str) -> None:
        attributes = {"noesium.capability": capability_id, "noesium.outcome": outcome}
        capability_resolution_duration.record(self._clock.monotonic() - begun, attributes)

    async def wait_for_log(self, error: LogUnavailableError) -> None:
        """Report that the log is unavailable and pause: a broker that restarts fails no run."""
        self._progress(waiting_for_log(error))
        await self._clock.sleep(_PAUSE_S)
