"""Questions to the registry's state: what is on offer, and what is like what is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from noesium_stream.capabilities.resolution import Resolution
from noesium_stream.capabilities.state import Entry, RegistryState
from noesium_stream.capabilities.version import check_range, check_version
from noesium_stream.errors import CapabilityNotFoundError
from noesium_stream.event.standard import (
    Capability,
    CapabilityType,
    DeterminismClass,
    LatencyClass,
    SideEffectClass,
)

_LISTED: Final = 20
_REASONS: Final = 5


@dataclass(frozen=True, slots=True)
class Query:
    """What live offers have to be like; None: it does not matter. `version` is a range."""

    determinism: DeterminismClass | None = None
    capability_type: CapabilityType | None = None
    side_effects: SideEffectClass | None = None
    latency: LatencyClass | None = None
    tag: str | None = None
    id: str | None = None
    version: str | None = None

    def found_in(self, state: RegistryState) -> list[Entry]:
        """The live offers that are like it, in the order of registration, with agents' own tools.

        Raises:
            ConfigError: the range is not valid.
        """
        wanted = None if self.version is None else check_range(self.version)
        offers = None if self.id is None else state.offers(self.id)
        if self.id is not None and offers is None:
            return []
        entries = state.entries(own_tools=True) if offers is None else offers.live(None).entries
        found = [
            entry
            for entry in entries
            if not entry.deprecated
            and (wanted is None or wanted.takes(check_version(entry.version)))
            and self._is_like(entry.capability)
        ]
        return sorted(found, key=lambda entry: entry.order)

    def _is_like(self, one: Capability) -> bool:
        return (
            self.determinism in (None, one.determinism_class)
            and self.capability_type in (None, one.capability_type)
            and self.side_effects in (None, one.side_effects)
            and self.latency in (None, one.latency_class)
            and (self.tag is None or self.tag in one.tags)
        )


def not_found(state: RegistryState, resolution: Resolution) -> CapabilityNotFoundError:
    """The error that nobody can be called; it lists what is on offer, or why offers were passed over."""
    considered = tuple(map(str, resolution.candidates))
    others = sorted({f"{one.capability_id} {one.version}" for one in state.entries() if not one.deprecated})
    offered = ", ".join(others[:_LISTED]) if others else "nothing"
    more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
    hint = "Start a worker of the agent that provides it."
    if considered:
        hint = f"Passed over: {'; '.join(considered[:_REASONS])}. {hint}"
    error = CapabilityNotFoundError(
        f"No agent offers {resolution.wanted}; on offer: {offered}{more}.", hint=hint
    )
    error.considered = considered
    return error
