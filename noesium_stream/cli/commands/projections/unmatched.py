"""Warnings about a projection's topic patterns and event types that match nothing."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection, Iterable
from typing import Final

from noesium_stream.cli.output import note
from noesium_stream.errors import ProjectionError
from noesium_stream.log.topics import Topology
from noesium_stream.projection.base import FACTS, JOURNALS, AnyProjection

_PATTERNS: Final = 'A pattern is written without the namespace: topics = ("agent.*.journal*", "events.*").'
_MAY_BE_MISSING: Final = frozenset({JOURNALS, FACTS, "registry", "events.memory"})
"""Topic patterns of the package's own projections that a log need not have."""


def say_unmatched(
    projection: AnyProjection, topics: Iterable[str], topology: Topology, *, end: bool = False
) -> None:
    """Name the patterns that match no topic; name the default ones only if no pattern matches.

    Raises:
        ProjectionError: with `end`: no pattern matches.
    """
    names = sorted(topics)
    shown = [name.removeprefix(f"{topology.namespace}.") for name in names]
    unmatched = [
        pattern
        for pattern in projection.topics
        if not fnmatch.filter(names, f"{topology.namespace}.{pattern}")
    ]
    nothing = len(unmatched) == len(projection.topics)
    there = f"there are: {', '.join(shown)}" if shown else "there are none yet"
    if nothing and end:
        raise ProjectionError(f"no topic matches {', '.join(unmatched)}; {there}.", hint=_PATTERNS)
    for pattern in unmatched:
        if nothing or pattern not in _MAY_BE_MISSING:
            note(f"no topic matches {pattern}; {there}")


def say_unknown_types(projection: AnyProjection, known: Collection[str]) -> None:
    """Name the `event_types` that no known event has: such a projection folds nothing, without an error."""
    for event_type in projection.event_types or ():
        if (
            projection.headers_only
            or event_type in known
            or (event_type.endswith(".") and any(name.startswith(event_type) for name in known))
        ):
            continue
        close = difflib.get_close_matches(event_type, known, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        note(f"no known event has the type {event_type}: {meant}name the class of your own in `events`")
