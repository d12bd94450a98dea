"""Discovery of capabilities by a copy of the registry that follows the log (RFC-0005)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from noesium_stream.capabilities.queries import Query
from noesium_stream.capabilities.registry_copy import RegistryCopy
from noesium_stream.capabilities.resolution import DeterministicResolver, Resolution, Wanted
from noesium_stream.capabilities.state import Entry, RegistryState
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.event.standard import CapabilityType, DeterminismClass, LatencyClass, SideEffectClass
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log.port import EventLog


class DiscoveryService:
    """A copy of the registry that is kept up to date while it is open; questions ask no log.

        async with DiscoveryService(log) as discovery:
            print(discovery.resolve("corpus.search", "^1").chosen)
            await discovery.changed(after=discovery.position)

    A copy lags behind the log by the time that a record takes to arrive; `CapabilityRegistry` asks the log.

    Args:
        log: the log.
        clock: of the pauses while the log does not answer.
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
        self._copy = RegistryCopy(log, clock=clock or SystemClock(), policy=policy, folder=folder)
        self._resolver = DeterministicResolver()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Fold what the registry holds now, and follow it from then on.

        Raises:
            LogUnavailableError: the log does not answer.
        """
        await self._copy.refresh()
        self._copy.follow()

    async def close(self) -> None:
        """Stop following; write the snapshot. Idempotent."""
        await self._copy.close()

    @property
    def state(self) -> RegistryState:
        """The present state, which later events change in place."""
        return self._copy.state

    @property
    def position(self) -> int:
        """The next offset of the registry's single partition."""
        return self._copy.position

    @property
    def refused(self) -> dict[int, str]:
        """Why records were passed over, by offset; the last ones."""
        return self._copy.refused

    async def changed(self, *, after: int) -> int:
        """Wait until the position is beyond `after`; return it."""
        return await self._copy.changed(after)

    def find(self, capability_id: str, version_range: str | None = None) -> list[Entry]:
        """See `CapabilityRegistry.find`."""
        return [*self._resolver.candidates(self.state, capability_id, version_range)]

    def find_by_tag(self, tag: str) -> list[Entry]:
        """See `CapabilityRegistry.find_by_tag`."""
        return Query(tag=tag).found_in(self.state)

    def query(
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
        """See `CapabilityRegistry.query`."""
        return Query(determinism, capability_type, side_effects, latency, tag, id, version).found_in(
            self.state
        )

    def resolve(
        self,
        capability_id: str,
        version_range: str | None = None,
        *,
        run_id: str | None = None,
        roles: Collection[str] | None = None,
        scopes: Collection[str] | None = None,
        capability_type: CapabilityType | None = None,
        without: Collection[str] = (),
    ) -> Resolution:
        """The provider that the copy's state gives, and every offer that was looked at.

        Raises:
            ConfigError: the range of versions is not valid.
        """
        wanted = Wanted(capability_id, version_range, run_id, roles, scopes, capability_type, without)
        return self._resolver.explain(self.state, wanted, self.position)
