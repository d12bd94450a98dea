"""Directory of other agents: the providers that a run may call, and their inboxes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.capabilities.resolution import Resolution
from noesium_stream.clock import Clock
from noesium_stream.errors import CapabilityNotFoundError, LogUnavailableError
from noesium_stream.event.rules.contract import Contract, contract_of
from noesium_stream.kernel import Provider
from noesium_stream.kernel.journal import Wanted
from noesium_stream.kernel.step.invocation import not_found
from noesium_stream.log.port import EventLog
from noesium_stream.observability import capability_resolution_duration
from noesium_stream.worker.circuits import Circuits
from noesium_stream.worker.progress_lines import LOG_ANSWERS, waiting_for_log
from noesium_stream.worker.provider_watch import ProviderWatch, asked_of_registry

MOST_CONSIDERED: Final = 20
"""Offers that `capability.unresolved` explains."""

_PAUSE_S: Final = 0.25
_LONGEST_NAME: Final = 200
_LONGEST_REASON: Final = 500


class Directory:
    """Finds providers and inboxes; waits while the log is unavailable.

    Args:
        log: the log that has the topics.
        registry: registry of the capabilities that agents offer.
        watch: follows the registry for the runs that wait for a provider.
        circuits: counts how calls end.
        clock: clock of the waits.
        progress: takes one line for people.
    """

    def __init__(
        self,
        log: EventLog,
        registry: CapabilityRegistry,
        watch: ProviderWatch,
        circuits: Circuits,
        clock: Clock,
        progress: Callable[[str], None],
    ) -> None:
        self._log = log
        self._registry = registry
        self.watch: Final = watch
        self.circuits: Final = circuits
        self._clock = clock
        self._progress = progress
        self._inboxes: dict[str, tuple[str, int]] = {}
        self._tasks: dict[str, tuple[str, int]] = {}
        self._facts: dict[str, tuple[str, int]] = {}

    def inbox_of(self, agent_type: str) -> tuple[str, int]:
        """Return an agent type's inbox and its number of partitions; call `learn_inbox` before."""
        return self._inboxes[agent_type]

    async def learn_inbox(self, agent_type: str) -> None:
        """Look up an agent type's inbox, so that `inbox_of` knows it; create a missing one."""
        if agent_type not in self._inboxes:
            self._inboxes[agent_type] = await self._made(self._log.topology.inbox(agent_type))

    def tasks_of(self, capability_id: str) -> tuple[str, int]:
        """Return the topic of a capability's tasks and its partitions; call `learn_tasks` before."""
        return self._tasks[capability_id]

    async def learn_tasks(self, capability_id: str) -> None:
        """As `learn_inbox`, for `tasks_of`; raises `ConfigError` if the id makes no topic name."""
        if capability_id not in self._tasks:
            self._tasks[capability_id] = await self._made(self._log.topology.task(capability_id))

    def facts_of(self, domain: str) -> tuple[str, int]:
        """Return the topic of a domain's facts and its partitions; call `learn_facts` before."""
        return self._facts[domain]

    async def learn_facts(self, domain: str) -> None:
        """As `learn_inbox`, for `facts_of`."""
        if domain not in self._facts:
            self._facts[domain] = await self._made(self._log.topology.events(domain))

    async def _made(self, topic: str) -> tuple[str, int]:
        """Create a topic where it is missing; return it with its number of partitions."""
        waited = False
        while True:
            try:
                await self._log.ensure_topics([self._log.topology.spec(topic)])
                found = topic, len(await self._log.end(topic))
                break
            except LogUnavailableError as error:
                waited = True
                await self.wait_for_log(error)
        if waited:
            self._progress(LOG_ANSWERS)
        return found

    async def resolve(self, wanted: Wanted) -> Provider:
        """See `RunJournal.resolve`; runs are spread over equal providers."""
        begun = self._clock.monotonic()
        await self._refresh()
        entry, offset = self._registry.selected(asked_of_registry(wanted)), self._registry.offset
        if entry is None:
            found = await self._explained(wanted)  # reads what has been registered since
            entry, offset = found.chosen, found.position
        self._measured(wanted.capability_id, begun, "unresolved" if entry is None else "resolved")
        if entry is None:
            raise self._not_found(wanted, found)
        await self.learn_inbox(entry.agent_type)
        contract = contract_of(entry.capability)
        return Provider(
            entry.agent_id, entry.agent_type, entry.capability_id, entry.version, offset, contract
        )

    async def contract(self, invoked: Mapping[str, Any]) -> Contract:
        """See `RunJournal.contract`: what is registered under a version never changes."""
        if self._registry.offset < (invoked.get("registry_offset") or 0):
            await self._refresh()
        found = self._registry.entry(invoked["target_agent_id"], invoked["capability_id"], invoked["version"])
        return Contract() if found is None else contract_of(found.capability)

    async def _refresh(self) -> None:
        waited = False
        while True:
            try:
                await self._registry.refresh()
                break
            except LogUnavailableError as error:
                waited = True
                await self.wait_for_log(error)
        if waited:
            self._progress(LOG_ANSWERS)

    async def _explained(self, wanted: Wanted) -> Resolution:
        asked = asked_of_registry(wanted)
        return await self._registry.resolve(
            asked.capability_id,
            asked.version_range,
            run_id=asked.run_id,
            roles=asked.roles,
            scopes=asked.scopes,
            without=asked.without,
            explain=True,
        )

    def _not_found(self, wanted: Wanted, found: Resolution) -> CapabilityNotFoundError:
        why = [str(one)[:_LONGEST_REASON] for one in found.candidates]
        why = why or list(_similar(self._registry.ids(), wanted.capability_id))
        error = not_found(wanted.capability_id, wanted.version_range, why[:MOST_CONSIDERED])
        error.denied = (
            self._registry.selected(replace(asked_of_registry(wanted), roles=None, scopes=None)) is not None
        )
        return error

    def _measured(self, capability_id: str, begun: float, outcome: str) -> None:
        attributes = {"noesium.capability": capability_id, "noesium.outcome": outcome}
        capability_resolution_duration.record(self._clock.monotonic() - begun, attributes)

    async def wait_for_log(self, error: LogUnavailableError) -> None:
        """Report that the log is unavailable and pause: a broker that restarts fails no run."""
        self._progress(waiting_for_log(error))
        await self._clock.sleep(_PAUSE_S)


def _similar(known: Collection[str], capability_id: str) -> Iterator[str]:
    """The offers with the most similar ids: the one that was asked for may be misspelt."""
    short = sorted(one for one in known if len(one) <= _LONGEST_NAME)
    for name in difflib.get_close_matches(capability_id[:_LONGEST_NAME], short, n=3):
        yield f"{name} has another id"
