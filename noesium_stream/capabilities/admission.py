"""Whether a registration is admitted: before it is written, and before a deploy.

The fold takes whatever is on the log, as long as a version keeps its metadata. Checked here is what an
agent does to its own callers: a version is immutable, and within a major version (in 0.x, a minor one) the
schemas may only grow. Prereleases are not compared: nobody gets one without asking for it.
"""

from __future__ import annotations

from typing import Final

from noesium_stream.capabilities.schema_breaks import Break, breaks
from noesium_stream.capabilities.state import Entry, RegistryState, canonical
from noesium_stream.capabilities.version import SemanticVersion, check_version
from noesium_stream.errors import CapabilityError
from noesium_stream.event.standard import Capability

_SAID: Final = 3


def is_news(state: RegistryState, agent_id: str, capability: Capability) -> bool:
    """Whether a registration would change something.

    Raises:
        CapabilityError: it is refused: the version is known with other metadata, or breaks callers.
        ConfigError: its version is no semantic version.
    """
    check_version(capability.version)
    known = state.entry(agent_id, capability.id, capability.version)
    if known is not None:
        if known.raw != canonical(capability):
            raise CapabilityError(
                f"{capability.id} {capability.version} of {agent_id} has other metadata on the log.",
                hint="A registered version is immutable: raise the version.",
            )
        return known.deprecated
    before = predecessor(state, agent_id, capability)
    found = [] if before is None else breaks(before.capability, capability)
    if before is not None and found:
        raise _refusal(before, capability, found)
    return True


def predecessor(state: RegistryState, agent_id: str, capability: Capability) -> Entry | None:
    """The version that a new one of the same agent must not break: the highest live one of the same major."""
    new = check_version(capability.version)
    if new.prerelease:
        return None
    found = [
        (version.key, entry)
        for entry in versions_of(state, agent_id, capability.id)
        if not entry.deprecated
        and not (version := check_version(entry.version)).prerelease
        and _line(version) == _line(new)
    ]
    return max(found, key=lambda one: one[0])[1] if found else None


def versions_of(state: RegistryState, agent_id: str, capability_id: str) -> list[Entry]:
    """All versions that an agent has ever offered of a capability, in the order of registration."""
    offers = state.offers(capability_id)
    entries = () if offers is None else offers.entries.values()
    return sorted((one for one in entries if one.agent_id == agent_id), key=lambda one: one.order)


def _line(version: SemanticVersion) -> tuple[int, ...]:
    """What versions that are compatible by their number share: those of `^VERSION`."""
    major, minor, patch = version.release
    if major:
        return (major,)
    return (0, minor) if minor else (0, 0, patch)


def _refusal(before: Entry, capability: Capability, found: list[Break]) -> CapabilityError:
    said = "; ".join(map(str, found[:_SAID]))
    more = f"; and {len(found) - _SAID} more" if len(found) > _SAID else ""
    major = check_version(capability.version).release[0]
    raised = f"{major + 1}.0.0" if major else f"0.{check_version(capability.version).release[1] + 1}.0"
    unknown = "" if all(one.comparable for one in found) else " What cannot be compared counts as a break."
    return CapabilityError(
        f"{capability.id} {capability.version} breaks callers of {before.version} of {before.agent_id}: "
        f"{said}{more}.",
        hint=f"Raise the version to {raised}, or keep to the schemas of {before.version}.{unknown}",
    )
