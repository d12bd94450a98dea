"""Choice of a provider (RFC-0005): filter, then rank by declared numbers; never by chance, clock or load."""

from __future__ import annotations

from collections.abc import Iterable

from noesium_stream.capabilities.state import Entry
from noesium_stream.capabilities.version import in_range


class DeterministicResolver:
    """filter (id → version → deprecation) → rank (priority, weight, registration) → select."""

    def candidates(self, entries: Iterable[Entry], capability_id: str, wanted: str | None) -> list[Entry]:
        """All matching entries, best first."""
        fitting = [
            entry
            for entry in entries
            if entry.capability.id == capability_id
            and not entry.deprecated
            and in_range(entry.capability.version, wanted)
        ]
        return sorted(fitting, key=_rank)

    def select(self, entries: Iterable[Entry], capability_id: str, wanted: str | None) -> Entry | None:
        """The best one, or None."""
        found = self.candidates(entries, capability_id, wanted)
        return found[0] if found else None


def _rank(entry: Entry) -> tuple[int, int, int]:
    return -entry.capability.priority, -entry.capability.weight, entry.order
