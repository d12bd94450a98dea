"""Registry of the capabilities of all agents on a log (RFC-0005, RFC-1001 §10.2)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal, overload

from noesium_stream.capabilities.admission import is_news, versions_of
from noesium_stream.capabilities.queries import Query, not_found
from noesium_stream.capabilities.registry_copy import RegistryCopy
from noesium_stream.capabilities.resolution import DeterministicResolver, Resolution, Wanted
from noesium_stream.capabilities.state import Circuit, Entry, RegistryState
from noesium_stream.capabilities.version import check_version
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.errors import CapabilityError
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import (
    Capability,
    CapabilityDeprecated,
    CapabilityRegistered,
    CapabilityType,
    CapabilityUpdated,
    DeterminismClass,
    LatencyClass,
    SideEffectClass,
)
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log.port import EventLog


class CapabilityRegistry:
    """A view of the registry topic; every query first folds the new events there.

    Anyone may write there: a record that is wrong, or that `policy` does not allow, is passed over, and the
    offers of others stay.

    Args:
        log: the log.
        clock: of the events that it writes.
        policy: decides whose registrations count; None: everybody's.
        folder: where a snapshot of the registry is kept, so that the next start is quick; None: nowhere.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        clock: Clock | None = None,
        policy: Policy | None = None,
        folder: Path | None = None,
    ) -> None:
        self._log = log
        self._clock = clock or SystemClock()
        self._policy = policy
        self._copy = RegistryCopy(log, clock=self._clock, policy=policy, folder=folder)
        self._resolver = DeterministicResolver()

    @property
    def offset(self) -> int:
        """The position of the view: the next offset of the registry's single partition."""
        return self._copy.position

    @property
    def refused(self) -> dict[int, str]:
        """Why records were passed over, by offset; the last ones."""
        return self._copy.refused

    async def refresh(self) -> RegistryState:
        """Fold the new events; return the state, which later events change (`copy` gives one that stays).

        Raises:
            LogUnavailableError: the log does not answer.
        """
        return await self._copy.refresh()

    async def at(self, position: int) -> RegistryState:
        """The state as of an earlier position: of all records below this offset.

        It is folded from the topic's beginning, by the policy of now.

        Raises:
            LogUnavailableError: the log does not answer.
        """
        past = RegistryCopy(self._log, clock=self._clock, policy=self._policy)
        return await past.refresh(until=position)

    async def changed(self, *, after: int) -> int:
        """Wait until the registry's position is beyond `after`, because of new events; return it.

        One reader of the log serves all who wait. While the log does not answer, it goes on waiting.
        """
        return await self._copy.changed(after)

    async def close(self) -> None:
        """Write the snapshot."""
        await self._copy.close()

    async def register(self, agent: AgentRef, capability: Capability) -> None:
        """Offer a capability; nothing is written if exactly this is on offer already.

        Raises:
            CapabilityError: this version is known with other metadata, or breaks callers of the last one.
            ConfigError: its version is no semantic version.
        """
        if is_news(await self.refresh(), agent.agent_id, capability):
            event = CapabilityRegistered(
                agent_id=agent.agent_id, agent_type=agent.agent_type, capability=capability
            )
            await self._write(agent, event)

    async def update(self, agent: AgentRef, capability: Capability) -> None:
        """Offer a new version of a capability that the agent offers already; earlier ones stay live.

        Raises:
            CapabilityError: the agent offers no lower version, or as `register`.
            ConfigError: its version is no semantic version.
        """
        state = await self.refresh()
        if not is_news(state, agent.agent_id, capability):
            return
        version = check_version(capability.version)
        versions = [
            entry.version
            for entry in versions_of(state, agent.agent_id, capability.id)
            if check_version(entry.version).key < version.key and not entry.deprecated
        ]
        if not versions:
            raise CapabilityError(
                f"{agent.agent_id} offers no {capability.id} below {capability.version}.",
                hint="Register it: register(agent, capability).",
            )
        event = CapabilityUpdated(
            agent_id=agent.agent_id,
            agent_type=agent.agent_type,
            capability=capability,
            previous_version=max(versions, key=lambda text: check_version(text).key),
        )
        await self._write(agent, event)

    async def deprecate(self, agent: AgentRef, capability_id: str, version: str, reason: str) -> None:
        """Exclude a version of the agent's own capability from resolution, until it is registered again.

        Nothing is written if it is deprecated already.

        Raises:
            CapabilityError: the agent does not offer this version.
        """
        state = await self.refresh()
        entry = state.entry(agent.agent_id, capability_id, version)
        if entry is None:
            known = [one.version for one in versions_of(state, agent.agent_id, capability_id)]
            raise CapabilityError(
                f"{agent.agent_id} does not offer {capability_id} {version}.",
                hint=f"It offers: {', '.join(known) or 'no version of it'}.",
            )
        if not entry.deprecated:
            event = CapabilityDeprecated(
                agent_id=agent.agent_id, capability_id=capability_id, version=version, reason=reason
            )
            await self._write(agent, event)

    def selected(self, wanted: Wanted) -> Entry | None:
        """The provider to call as of `offset`; asks no log.

        Raises:
            ConfigError: the range is not valid.
        """
        return self._resolver.select(self._copy.state, wanted)

    def entry(self, agent_id: str, capability_id: str, version: str) -> Entry | None:
        """An offer as of `offset`, live or not; asks no log."""
        return self._copy.state.entry(agent_id, capability_id, version)

    def circuit(self, agent_id: str, capability_id: str) -> Circuit | None:
        """The circuit of what an agent offers, if it is not closed, as far as the registry was read."""
        return self._copy.state.circuits.get((agent_id, capability_id))

    def ids(self) -> set[str]:
        """The ids of all capabilities that were ever offered, as of `offset`."""
        return {entry.capability_id for entry in self._copy.state.entries()}

    async def find(self, capability_id: str, version_range: str | None = None) -> list[Entry]:
        """All live offers in this range, by priority, weight and registration.

        Raises:
            ConfigError: the range is not valid.
        """
        return [*self._resolver.candidates(await self.refresh(), capability_id, version_range)]

    async def find_by_tag(self, tag: str) -> list[Entry]:
        """All live offers with this tag, in the order of registration."""
        return Query(tag=tag).found_in(await self.refresh())

    async def query(
        self,
        *,
        determinism: DeterminismClass | None = None,
        capability_type: CapabilityType | None = None,
        side_effects: SideEffectClass | None = None,
        latency: LatencyClass | None = None,
        tag: str | None = None,
        id: str | None = None,
        version: str | None = None,
    ) -> list[Entry]:
        """All live offers that are like this, in the order of registration; `version` is a range.

        Raises:
            ConfigError: the range is not valid.
        """
        query = Query(determinism, capability_type, side_effects, latency, tag, id, version)
        return query.found_in(await self.refresh())

    @overload
    async def resolve(
        self,
        capability_id: str,
        version_range: str | None = None,
        *,
        run_id: str | None = None,
        roles: Collection[str] | None = None,
        scopes: Collection[str] | None = None,
        capability_type: CapabilityType | None = None,
        without: Collection[str] = (),
        at: int | None = None,
        explain: Literal[False] = False,
    ) -> Entry: ...

    @overload
    async def resolve(
        self,
        capability_id: str,
        version_range: str | None = None,
        *,
        run_id: str | None = None,
        roles: Collection[str] | None = None,
        scopes: Collection[str] | None = None,
        capability_type: CapabilityType | None = None,
        without: Collection[str] = (),
        at: int | None = None,
        explain: Literal[True],
    ) -> Resolution: ...

    async def resolve(
        self,
        capability_id: str,
        version_range: str | None = None,
        *,
        run_id: str | None = None,
        roles: Collection[str] | None = None,
        scopes: Collection[str] | None = None,
        capability_type: CapabilityType | None = None,
        without: Collection[str] = (),
        at: int | None = None,
        explain: bool = False,
    ) -> Entry | Resolution:
        """The provider to call; see `Wanted` for what decides, and `at` for an earlier position.

        With `explain` the choice comes with every offer that was looked at and why it was taken or not, and
        it is no error if nobody can be called.

        Raises:
            CapabilityNotFoundError: nobody can be called; the message lists what is on offer.
            ConfigError: the range is not valid.
        """
        wanted = Wanted(capability_id, version_range, run_id, roles, scopes, capability_type, without)
        state = await (self.refresh() if at is None else self.at(at))
        position = self.offset if at is None else at
        if explain:
            return self._resolver.explain(state, wanted, position)
        found = self._resolver.select(state, wanted)
        if found is None:
            raise not_found(state, self._resolver.explain(state, wanted, position))
        return found

    async def _write(self, agent: AgentRef, event: DomainEvent) -> None:
        await self._log.append([root_event(event, agent, self._clock)])
