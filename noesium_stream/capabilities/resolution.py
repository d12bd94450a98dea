"""Choice of a provider (RFC-0005): filter, then rank by declared numbers; never by chance, clock or load.

The filters, in order: capability id, version, type, roles and scopes, health. Among the offers that pass,
those of the highest priority stand. Of these, the run's id chooses in proportion to their weights, so that
runs are spread and one run always gets the same answer from the same state; without a run the heaviest is
taken, and of equal ones the one that was registered first.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from noesium_stream.capabilities.own_tools import OWN_TOOL, is_own_tool
from noesium_stream.capabilities.state import Entry, Ranking, RegistryState, rank
from noesium_stream.capabilities.version import check_range, check_version
from noesium_stream.event.standard import CapabilityType

TAKEN: Final = "taken"
_SPREAD_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller asks for.

    Attributes:
        capability_id: the capability.
        version_range: the versions that it can work with; None: any.
        run_id: the run that calls; it spreads runs over equal providers. None: the first of them.
        roles, scopes: those that the caller has; None: they are not judged here.
        capability_type: the kind of provider; None: any.
        without: ids of agents that are passed over.
    """

    capability_id: str
    version_range: str | None = None
    run_id: str | None = None
    roles: Collection[str] | None = None
    scopes: Collection[str] | None = None
    capability_type: CapabilityType | None = None
    without: Collection[str] = ()

    def __str__(self) -> str:
        return (
            self.capability_id if self.version_range is None else f"{self.capability_id} {self.version_range}"
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """An offer that was looked at, and why it was taken or not."""

    entry: Entry
    taken: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.entry}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Resolution:
    """A choice with all that was considered.

    Attributes:
        wanted: what was asked for.
        position: the registry's position (its next offset) that the choice is based on.
        chosen: the provider; None: nobody can be called.
        candidates: every offer of the capability, best first, those that were passed over last.
    """

    wanted: Wanted
    position: int
    chosen: Entry | None
    candidates: tuple[Candidate, ...] = field(default=())


class DeterministicResolver:
    """filter (id → version → type → roles, scopes → health) → rank (priority, weight, order) → select."""

    def candidates(self, state: RegistryState, capability_id: str, wanted: str | None) -> Sequence[Entry]:
        """All live offers in this range, by priority, weight and registration; none of agents' own tools.

        Raises:
            ConfigError: the range is not valid.
        """
        offers = None if is_own_tool(capability_id) else state.offers(capability_id)
        if offers is None:
            if wanted is not None:
                check_range(wanted)
            return ()
        return offers.live(wanted).entries

    def select(self, state: RegistryState, wanted: Wanted) -> Entry | None:
        """The provider to call, or None.

        Raises:
            ConfigError: the range is not valid.
        """
        offers = state.offers(wanted.capability_id)
        if offers is None:
            self.candidates(state, wanted.capability_id, wanted.version_range)
            return None
        ranking = offers.live(wanted.version_range)
        if is_own_tool(wanted.capability_id):
            return None
        if _has_conditions(wanted) or _may_fail(state, wanted.capability_id, ranking):
            ranking = Ranking.of(one for one in ranking.entries if _refusal(state, wanted, one) is None)
        return _selected(ranking, wanted)

    def explain(self, state: RegistryState, wanted: Wanted, position: int) -> Resolution:
        """The same choice, with what was considered.

        Raises:
            ConfigError: the range is not valid.
        """
        chosen = self.select(state, wanted)
        offers = state.offers(wanted.capability_id)
        found = () if offers is None else offers.entries.values()
        judged = [(entry, _misfit(wanted, entry) or _refusal(state, wanted, entry)) for entry in found]
        passed = [entry for entry, objection in judged if objection is None]
        best = Ranking.of(passed).best
        candidates = [
            Candidate(entry, entry == chosen, objection or _why(entry, chosen, best, wanted))
            for entry, objection in judged
        ]
        ranked = sorted(
            candidates, key=lambda one: (not one.taken, one.entry not in passed, *rank(one.entry))
        )
        return Resolution(wanted, position, chosen, tuple(ranked))


def _has_conditions(wanted: Wanted) -> bool:
    """Whether an offer of a fitting version may be refused for what the caller says."""
    judged = (wanted.roles, wanted.scopes, wanted.capability_type)
    return bool(wanted.without) or any(one is not None for one in judged)


def _may_fail(state: RegistryState, capability_id: str, ranking: Ranking) -> bool:
    """Whether an agent among the offers may be unavailable, or calls of the capability have failed."""
    if not state.ill.isdisjoint(ranking.agents):
        return True
    return any(failed == capability_id for _, failed in state.circuits)


def _misfit(wanted: Wanted, entry: Entry) -> str | None:
    """Why an offer is not live, or not of a wanted version; None: it is."""
    if entry.deprecation is not None:
        return f"deprecated: {entry.deprecation}" if entry.deprecation else "deprecated"
    if wanted.version_range is not None and not check_range(wanted.version_range).takes(
        check_version(entry.version)
    ):
        return f"the version {entry.version} is not in {wanted.version_range}"
    return None


def _refusal(state: RegistryState, wanted: Wanted, entry: Entry) -> str | None:
    """Why an offer that fits is passed over; None: it is not."""
    capability = entry.capability
    if is_own_tool(entry.capability_id):
        return OWN_TOOL
    if wanted.capability_type is not None and capability.capability_type != wanted.capability_type:
        return f"its type is {capability.capability_type}, not {wanted.capability_type}"
    for kind, required, given in (
        ("role", capability.required_roles, wanted.roles),
        ("scope", capability.required_scopes, wanted.scopes),
    ):
        missing = [] if given is None else [name for name in required if name not in given]
        if missing:
            return f"it requires the {kind} {missing[0]}, which the caller does not have"
    if entry.agent_id in wanted.without:
        return "its agent is to be left out"
    unavailable = state.unavailable(entry.agent_id)
    if unavailable is not None:
        return f"its agent is unavailable: {unavailable}"
    broken = state.broken(entry.agent_id, entry.capability_id)
    return None if broken is None else f"its circuit is open: {broken}"


def _selected(ranking: Ranking, wanted: Wanted) -> Entry | None:
    """One of the best offers; those of weight 0 are only taken if there are no others."""
    if not ranking.best:
        return None
    if wanted.run_id is None:
        return ranking.entries[0]
    point = _point(wanted.run_id, wanted.capability_id, ranking.shares[-1])
    return ranking.best[bisect_right(ranking.shares, point)]


def _point(run_id: str, capability_id: str, total: int) -> int:
    """A number below `total` that the run and the capability determine, evenly spread over runs."""
    digest = hashlib.sha256(f"{run_id}\x00{capability_id}".encode()).digest()
    return int.from_bytes(digest[: _SPREAD_BITS // 8]) * total >> _SPREAD_BITS


def _why(entry: Entry, chosen: Entry | None, best: Sequence[Entry], wanted: Wanted) -> str:
    """Why an offer that passes all filters was taken or not."""
    capability = entry.capability
    highest = best[0].capability.priority
    if entry not in best:
        return f"its priority {capability.priority} is below {highest}"
    total = sum(one.capability.weight for one in best)
    if entry == chosen:
        if len(best) == 1:
            return f"{TAKEN}: the only one of the highest priority {highest}"
        if wanted.run_id is None:
            return f"{TAKEN}: weight {capability.weight}, registered as number {entry.order}"
        return f"{TAKEN}: the run's share of the weights ({capability.weight} of {total}) falls on it"
    if wanted.run_id is not None:
        return f"the run's share of the weights ({capability.weight} of {total}) does not fall on it"
    if chosen is not None and chosen.capability.weight > capability.weight:
        return f"its weight {capability.weight} is below {chosen.capability.weight}"
    return "it was registered later"
