"""Registry of the capabilities of all agents on a log (RFC-0005, RFC-1001 §10.2)."""

from __future__ import annotations

import asyncio
from typing import Final

from noesium_stream.capabilities.resolution import DeterministicResolver
from noesium_stream.capabilities.state import CapabilityProjection, Entry, RegistryState
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.errors import (
    CapabilityError,
    CapabilityNotFoundError,
    EventError,
    EventValidationError,
    brief,
)
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import Capability, CapabilityDeprecated, CapabilityRegistered
from noesium_stream.event.trust.policy import Policy, ruling
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.projection.base import fold_to_end

_REFUSED: Final = 100
_REASON_LENGTH: Final = 300


class CapabilityRegistry:
    """A view of the registry topic; every query first folds the new events there.

    Anyone may write there: a record that is wrong, or that `policy` does not allow, is passed over, and the
    offers of others stay.

    Attributes:
        refused: why records were passed over, by offset; the last ones.
    """

    def __init__(self, log: EventLog, *, clock: Clock | None = None, policy: Policy | None = None) -> None:
        self.refused: dict[int, str] = {}
        self._log = log
        self._clock = clock or SystemClock()
        self._policy = policy
        self._topic = log.topology.registry
        self._projection = CapabilityProjection()
        self._resolver = DeterministicResolver()
        self._state: RegistryState = self._projection.initial_state()
        self._cursor: dict[int, int] = {}
        self._folding = asyncio.Lock()

    @property
    def offset(self) -> int:
        """The position of the view: the next offset of the registry's single partition."""
        return self._cursor.get(0, 0)

    async def refresh(self) -> RegistryState:
        """Fold the new events; return the state."""
        async with self._folding:
            await self._log.ensure_topics([self._log.topology.spec(self._topic)])
            self._state, self._cursor = await fold_to_end(
                self._log,
                self._topic,
                self._projection,
                self._state,
                self._cursor,
                on_refused=self._refuse,
                check=self._check,
            )
            return self._state

    def _check(self, record: Record) -> None:
        event = record.envelope
        agent_type = event.producer.agent_type
        refused = ruling(self._policy, event, record.signed_by, "register", agent_type).refused
        if refused is not None:
            raise EventValidationError("producer", refused)

    def _refuse(self, record: Record, error: EventError) -> None:
        self.refused[record.offset] = brief(error, _REASON_LENGTH)
        if len(self.refused) > _REFUSED:
            del self.refused[min(self.refused)]

    async def register(self, agent: AgentRef, capability: Capability) -> None:
        """Offer a capability; nothing is written if exactly this is on offer already.

        Raises:
            CapabilityError: this version is on offer with other metadata.
        """
        state = await self.refresh()
        known = state.entries.get((agent.agent_id, capability.id, capability.version))
        if known is not None and not known.deprecated:
            if known.capability == capability:
                return
            raise CapabilityError(
                f"{capability.id} {capability.version} of {agent.agent_id} has other metadata on the log.",
                hint="A registered version is immutable: raise the version, or deprecate the old one first.",
            )
        event = CapabilityRegistered(
            agent_id=agent.agent_id, agent_type=agent.agent_type, capability=capability
        )
        await self._log.append([root_event(event, agent, self._clock)])

    async def deprecate(self, agent: AgentRef, capability_id: str, version: str, reason: str) -> None:
        """Exclude a version of the agent's own capability from resolution."""
        event = CapabilityDeprecated(
            agent_id=agent.agent_id, capability_id=capability_id, version=version, reason=reason
        )
        await self._log.append([root_event(event, agent, self._clock)])

    async def find(self, capability_id: str, version_range: str | None = None) -> list[Entry]:
        """All current providers in this range, best first."""
        state = await self.refresh()
        return self._resolver.candidates(state.entries.values(), capability_id, version_range)

    async def find_by_tag(self, tag: str) -> list[Entry]:
        """All live entries with this tag, in the order of registration."""
        state = await self.refresh()
        found = [
            entry for entry in state.entries.values() if tag in entry.capability.tags and not entry.deprecated
        ]
        return sorted(found, key=lambda entry: entry.order)

    async def resolve(self, capability_id: str, version_range: str | None = None) -> Entry:
        """The provider to call.

        Raises:
            CapabilityNotFoundError: nobody offers it in this range; the message lists what is on offer.
            ConfigError: the range is not valid.
        """
        found = await self.find(capability_id, version_range)
        if found:
            return found[0]
        entries = self._state.entries.values()
        others = sorted({f"{e.capability.id} {e.capability.version}" for e in entries if not e.deprecated})
        wanted = capability_id if version_range is None else f"{capability_id} {version_range}"
        offered = ", ".join(others) if others else "nothing"
        raise CapabilityNotFoundError(
            f"No agent offers {wanted}; on offer: {offered}.",
            hint="Start a worker of the agent that provides it.",
        )
