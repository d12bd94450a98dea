"""Choosing a provider (RFC-0005): filter, then rank by declared numbers; never by chance, clock or load."""

from __future__ import annotations

import re
from collections.abc import Iterable

from noesium_stream.capability.state import Entry
from noesium_stream.errors import ConfigError

Version = tuple[int, int, int]

_PART = re.compile(r"(\^|~|>=|<=|>|<|==|=)?\s*(\d+)(?:\.(\d+))?(?:\.(\d+))?")


def parse_version(text: str) -> Version:
    """`1.2.3` as numbers.

    Raises:
        ConfigError: it is no semantic version.
    """
    found = _PART.fullmatch(text.strip())
    if found is None or found[1] or found[4] is None:
        raise ConfigError(f"{text!r} is not a semantic version.", hint="Write it as 1.2.3.")
    return int(found[2]), int(found[3]), int(found[4])


def in_range(version: str, wanted: str | None) -> bool:
    """Whether a version satisfies a range: `^1`, `~1.2`, `>=1.2 <2`, `1.2.3`, `*` or None for any.

    `^1.2` takes a higher minor or patch of major 1 (a different major is incompatible); a bare `1.2.3`
    means exactly that one.

    Raises:
        ConfigError: the range cannot be read.
    """
    if wanted is None or wanted.strip() in ("", "*"):
        return True
    have = parse_version(version)
    return all(_holds(have, part) for part in re.split(r"\s*,\s*|\s+(?=[\^~<>=\d])", wanted.strip()))


def _holds(have: Version, part: str) -> bool:
    found = _PART.fullmatch(part)
    if found is None:
        raise ConfigError(f"{part!r} is not a version range.", hint="Examples: ^1, ~1.2, '>=1.2 <2', 1.2.3.")
    operator, given = found[1] or "=", [int(number) for number in found.groups()[1:] if number is not None]
    low: Version = (given[0], given[1] if len(given) > 1 else 0, given[2] if len(given) > 2 else 0)
    if operator == "^":
        return have >= low and have[0] == low[0]
    if operator == "~":
        return have >= low and have[: min(len(given), 2)] == tuple(given[:2])
    if operator in ("=", "=="):
        return have[: len(given)] == tuple(given)
    comparisons = {">=": have >= low, "<=": have <= low, ">": have > low, "<": have < low}
    return comparisons[operator]


class DeterministicResolver:
    """filter (id → version → deprecation) → rank (priority, weight, registration) → select."""

    def candidates(self, entries: Iterable[Entry], capability_id: str, wanted: str | None) -> list[Entry]:
        """All that would do, the best first."""
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
