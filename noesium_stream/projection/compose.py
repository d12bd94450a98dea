"""Composition of projections (RFC-0004 §6.3): one fold, one file per partition, states side by side."""

from __future__ import annotations

from types import new_class
from typing import Any, Final, Literal, NotRequired, cast

from typing_extensions import TypedDict

from noesium_stream.errors import ProjectionError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.headers import TypeFilter
from noesium_stream.projection.base import AnyProjection, BaseProjection, require_instance
from noesium_stream.projection.state.codec import state_type

States = dict[str, Any]
"""States by part name, in the order of the parts; a part without a row is missing."""


_VERSIONS: Final = "@versions"


class FederatedProjection(BaseProjection[States]):
    """The states of several projections, folded together; made by `compose`."""

    name = "federated"

    def __init__(self, parts: dict[str, AnyProjection]) -> None:
        self.parts: Final = parts
        self._wants = {
            name: None if part.event_types is None else TypeFilter(part.event_types)
            for name, part in parts.items()
        }

    def initial_state(self) -> States:
        """An empty row; without keys, the initial states of all parts."""
        if self.keyed():
            return {}
        return {name: part.initial_state() for name, part in self.parts.items()}

    def apply(self, state: States, event: EventEnvelope) -> States | None:
        """Apply the event to every part that wants it."""
        new: States = {}
        for name, part in self.parts.items():
            found = state.get(name)
            if self._wanted(name, event) and part.key(event) is not None:
                found = part.apply(part.initial_state() if found is None else found, event)
            if found is not None:
                new[name] = found
        return new or None

    def unmerged(self) -> tuple[str, ...]:
        """The names of the parts without `merge`."""
        return tuple(name for name, part in self.parts.items() if not part.merges())

    def _wanted(self, name: str, event: EventEnvelope) -> bool:
        wants = self._wants[name]
        return wants is None or wants.keeps_name(event.event_type)

    def _common_key(self, event: EventEnvelope) -> str | None:
        keys = {
            key
            for name, part in self.parts.items()
            if self._wanted(name, event) and (key := part.key(event)) is not None
        }
        if len(keys) > 1:
            raise ProjectionError(
                f"The parts of {self.name} say different keys for {event.event_type} {event.event_id}: "
                f"{', '.join(sorted(keys))}.",
                hint="What is composed is one row per key: attach them one by one instead.",
            )
        return min(keys, default=None)

    def _merged(self, a: States, b: States) -> States:
        new: States = {}
        for name, part in self.parts.items():
            both = [side[name] for side in (a, b) if name in side]
            if both:
                new[name] = both[0] if len(both) == 1 else part.merge(*both)
        return new


def compose(name: str, version: int = 1, /, **parts: AnyProjection) -> FederatedProjection:
    """One projection whose state holds the states of `parts`, by their names here.

    All parts see the same events in the same order and are written together, so a read always shows them at
    one position. Increment `version` when parts are added or removed. A change of a part's own version is
    detected, and everything is folded again.

    Raises:
        ProjectionLoadError: a part is not a projection.
        ProjectionError: the parts cannot be folded together; the message says which and why.
    """
    if not parts:
        raise ProjectionError(f"{name} is composed of nothing.")
    for part in parts.values():
        require_instance(part)
    ordered = dict(sorted(parts.items()))
    first = next(iter(ordered.values()))
    for what, differs in (
        ("topics", lambda part: set(part.topics) != set(first.topics)),
        ("headers_only", lambda part: part.headers_only != first.headers_only),
        ("include_copies", lambda part: part.include_copies != first.include_copies),
        ("keys", lambda part: part.spreads()),
        ("key", lambda part: part.keyed() != first.keyed()),
    ):
        other = next((part for part in ordered if differs(ordered[part])), None)
        if other is not None:
            raise ProjectionError(
                f"The parts of {name} cannot be folded together: `{what}` differs at {other}.",
                hint="Attach them one by one instead.",
            )
    types = [part.event_types for part in ordered.values()]
    members: dict[str, Any] = {
        "name": name,
        "version": version,
        "events": tuple(dict.fromkeys(event for part in ordered.values() for event in part.events)),
        "event_versions": _reads(name, ordered),
        "topics": first.topics,
        "headers_only": first.headers_only,
        "include_copies": first.include_copies,
        "local_keys": all(part.local_keys or part.merges() for part in ordered.values()),
        "in_place": any(part.in_place for part in ordered.values()),
        "on_error": "stop" if any(part.on_error == "stop" for part in ordered.values()) else "hold",
        "event_types": None
        if None in types
        else tuple(sorted({kind for some in types for kind in some or ()})),
        "__doc__": FederatedProjection.__doc__,
        "__module__": __name__,
    }
    if first.keyed():
        members["key"] = FederatedProjection._common_key
    if all(part.merges() for part in ordered.values()):
        members["merge"] = FederatedProjection._merged
    return _made(name, ordered, members)


def _reads(name: str, parts: dict[str, AnyProjection]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts.values():
        for event_type, major in part.event_versions.items():
            if found.setdefault(event_type, major) != major:
                raise ProjectionError(
                    f"The parts of {name} cannot be folded together: they read different versions of "
                    f"{event_type}.",
                    hint="Attach them one by one instead.",
                )
    return found


def _made(name: str, parts: dict[str, AnyProjection], members: dict[str, Any]) -> FederatedProjection:
    """Create the composed projection.

    Its state type contains the parts' types and versions, so a file of other parts is not used.
    """
    fields: dict[str, Any] = {}
    for part, projection in parts.items():
        kind = state_type(type(projection))
        fields[part] = NotRequired[Any if kind is None else kind]
    versions = ", ".join(f"{part} {projection.version}" for part, projection in parts.items())
    fields[_VERSIONS] = NotRequired[Literal[versions]]  # never set; makes the versions part of the type
    states: Any = cast(Any, TypedDict)("States", fields)
    members["__orig_bases__"] = (BaseProjection[states],)  # where `state_type` looks
    kind = new_class(f"Federated_{name}", (FederatedProjection,), exec_body=lambda s: s.update(members))
    made: FederatedProjection = kind(parts)
    return made
