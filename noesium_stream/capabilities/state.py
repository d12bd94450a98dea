"""State of the registry (RFC-0005): who offers what, and who is unavailable.

Decision record: an immutable state that is copied at each event takes a time that grows with the square of
their number. So the fold changes the state in place (`in_place`), at a cost that does not grow; `copy` gives
one that stays. An offer's metadata is kept as canonical JSON: that is what two processes compare, what a
snapshot holds, and what is parsed when somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

import orjson

from noesium_stream.capabilities.own_tools import is_own_tool
from noesium_stream.capabilities.version import check_range, check_version
from noesium_stream.event.standard import Capability

_RANGES: Final = 64
"""Number of ranges per capability whose offers are kept in order."""

OfferKey = tuple[str, str]
"""Agent id and version."""


class Entry(NamedTuple):
    """One version of a capability as one agent offers it.

    Attributes:
        agent_id, agent_type: who offers it.
        capability_id, version: what.
        order: its place in the order of registrations.
        event_id: the id of the registration that counts.
        deprecation: why it is no longer to be chosen; None: it is live.
        deprecated_by: the id of that event.
        raw: all of the capability as canonical JSON.
    """

    agent_id: str
    agent_type: str
    capability_id: str
    version: str
    order: int
    event_id: str
    deprecation: str | None
    deprecated_by: str | None
    raw: bytes

    @property
    def capability(self) -> Capability:
        """The capability with its schemas and metadata."""
        return _parsed(self.raw)

    @property
    def deprecated(self) -> bool:
        """Whether it is no longer to be chosen."""
        return self.deprecation is not None

    def __str__(self) -> str:
        return f"{self.capability_id} {self.version} of {self.agent_id}"


@dataclass(frozen=True, slots=True)
class Health:
    """What was last said of an agent's health, by the events `unavailable_by` and `recovered_by`.

    `reason` None: it is available; `since_ms` is the last event's time.
    """

    reason: str | None
    since_ms: int
    unavailable_by: str
    recovered_by: str = ""


@dataclass(frozen=True, slots=True)
class Circuit:
    """A circuit that is not closed: calls of what an agent offers have failed in a row.

    `probing`: it has been open for long enough, and the next call decides. `event_id` opened it.
    """

    reason: str
    since_ms: int
    event_id: str
    probing: bool = False


@dataclass(frozen=True, slots=True)
class Ranking:
    """Offers in the order in which they are preferred.

    Attributes:
        entries: by priority, weight and registration.
        best: those of the highest priority, by registration.
        shares: for each of the best the sum of the weights up to it. If all weights are 0, each counts as 1.
        agents: the ids of the agents.
    """

    entries: tuple[Entry, ...]
    best: tuple[Entry, ...]
    shares: tuple[int, ...]
    agents: frozenset[str]

    @classmethod
    def of(cls, offers: Iterable[Entry]) -> Ranking:
        """Rank offers."""
        entries = tuple(sorted(offers, key=rank))
        highest = entries[0].capability.priority if entries else 0
        best = tuple(sorted((one for one in entries if one.capability.priority == highest), key=_order))
        weights = [one.capability.weight for one in best]
        shares = tuple(accumulate(weights if any(weights) else [1] * len(best)))
        return cls(entries, best, shares, frozenset(one.agent_id for one in entries))


class Offers:
    """All offers of one capability id."""

    __slots__ = ("_ranked", "entries")

    def __init__(self, entries: dict[OfferKey, Entry] | None = None) -> None:
        self.entries: dict[OfferKey, Entry] = {} if entries is None else entries
        self._ranked: dict[str | None, Ranking] = {}

    def put(self, entry: Entry) -> None:
        """Add or replace an offer."""
        self.entries[entry.agent_id, entry.version] = entry
        self._ranked.clear()

    def forget_order(self) -> None:
        """Rank the offers anew when they are next asked for: `entries` has changed."""
        self._ranked.clear()

    def live(self, wanted: str | None) -> Ranking:
        """The live offers within a range of versions; None: all.

        Raises:
            ConfigError: the range is not valid.
        """
        found = self._ranked.get(wanted)
        if found is None:
            taken = None if wanted is None else check_range(wanted)
            found = Ranking.of(
                entry
                for entry in self.entries.values()
                if not entry.deprecated and (taken is None or taken.takes(check_version(entry.version)))
            )
            if len(self._ranked) >= _RANGES:
                self._ranked.clear()
            self._ranked[wanted] = found
        return found


class RegistryState:
    """All offers, by capability id, and the health of their agents.

    Attributes:
        count: the number of registrations that have counted.
        health: by agent id, of agents that were ever unavailable; `put_health` changes it.
        ill: the ids of agents that are unavailable.
        circuits: by agent id and capability id, those that are not closed.
        spent: ids of events that have no effect any more, also if they come again.
    """

    __slots__ = ("_offers", "circuits", "count", "health", "ill", "spent")

    def __init__(self) -> None:
        self._offers: dict[str, Offers] = {}
        self.count = 0
        self.health: dict[str, Health] = {}
        self.ill: set[str] = set()
        self.circuits: dict[tuple[str, str], Circuit] = {}
        self.spent: set[str] = set()

    def __len__(self) -> int:
        return sum(len(offers.entries) for offers in self._offers.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RegistryState):
            return NotImplemented
        mine, theirs = (
            (s.count, s.health, s.circuits, s.spent, list(s.entries(own_tools=True))) for s in (self, other)
        )
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]

    def entries(self, *, own_tools: bool = False) -> Iterator[Entry]:
        """All offers, also deprecated ones, in the order of registration; with `own_tools` also those."""
        found = (
            entry
            for id, offers in self._offers.items()
            if own_tools or not is_own_tool(id)
            for entry in offers.entries.values()
        )
        yield from sorted(found, key=_order)

    def entry(self, agent_id: str, capability_id: str, version: str) -> Entry | None:
        """One offer, also a deprecated one."""
        offers = self._offers.get(capability_id)
        return None if offers is None else offers.entries.get((agent_id, version))

    def offers(self, capability_id: str) -> Offers | None:
        """All offers of one capability."""
        return self._offers.get(capability_id)

    def unavailable(self, agent_id: str) -> str | None:
        """Why an agent is unavailable; None: it is not."""
        health = self.health.get(agent_id)
        return None if health is None else health.reason

    def broken(self, agent_id: str, capability_id: str) -> str | None:
        """Why calls of what an agent offers are expected to fail; None: they are not."""
        circuit = self.circuits.get((agent_id, capability_id))
        return None if circuit is None or circuit.probing else circuit.reason

    def put(self, entry: Entry) -> None:
        """Add or replace an offer."""
        offers = self._offers.get(entry.capability_id)
        if offers is None:
            offers = self._offers[entry.capability_id] = Offers()
        offers.put(entry)

    def put_all(self, entries: Iterable[Entry]) -> None:
        """Add offers; as `put` of each, for many at once."""
        offers = self._offers
        for entry in entries:
            of_id = offers.get(entry.capability_id)
            if of_id is None:
                of_id = offers[entry.capability_id] = Offers()
            of_id.entries[entry.agent_id, entry.version] = entry
        for of_id in offers.values():
            of_id.forget_order()

    def put_health(self, agent_id: str, health: Health) -> None:
        """Set what is known of an agent's health."""
        self.health[agent_id] = health
        (self.ill.discard if health.reason is None else self.ill.add)(agent_id)

    def copy(self) -> RegistryState:
        """A state that later events do not change."""
        made = RegistryState()
        made._offers = {id: Offers(dict(offers.entries)) for id, offers in self._offers.items()}
        made.count, made.spent = self.count, set(self.spent)
        made.health, made.ill = dict(self.health), set(self.ill)
        made.circuits = dict(self.circuits)
        return made


def canonical(capability: Capability) -> bytes:
    """A capability as canonical JSON: equal bytes if and only if all of its metadata is equal.

    Raises:
        TypeError: one of its schemas is no JSON.
    """
    return orjson.dumps(capability.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)


@lru_cache(maxsize=16_384)
def _parsed(raw: bytes) -> Capability:
    return Capability.model_validate_json(raw)


def _order(entry: Entry) -> int:
    return entry.order


def rank(entry: Entry) -> tuple[int, int, int]:
    """Sort key of offers: by priority, weight and registration."""
    capability = entry.capability
    return -capability.priority, -capability.weight, entry.order
