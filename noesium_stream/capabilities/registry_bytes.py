"""The registry's state as canonical bytes: equal states have equal bytes, in every process.

    ["noesium-registry", FORMAT, COUNT]
    [[agent id, agent type, capability id, version, order, event id, deprecation, deprecated by], …]
    [[agent id, reason, since_ms, unavailable by, recovered by], …]
    [[agent id, capability id, reason, since_ms, event id, probing], …]
    [spent event ids]
    and a line for each entry of the second line: the capability as canonical JSON

Reading it back parses no capability, so that a registry of any size is there at once.
"""

from __future__ import annotations

from typing import Final

import orjson

from noesium_stream.capabilities.state import Circuit, Entry, Health, RegistryState

FORMAT: Final = 2
"""Version of the state and of its meaning; raise it when the fold changes."""

_NAME: Final = "noesium-registry"
_HEAD: Final = 5
"""Number of lines before those of the capabilities."""


def registry_bytes(state: RegistryState) -> bytes:
    """The state as canonical bytes."""
    entries = list(state.entries(own_tools=True))
    heads = [one[:-1] for one in entries]
    health = [
        (agent_id, one.reason, one.since_ms, one.unavailable_by, one.recovered_by)
        for agent_id, one in sorted(state.health.items())
    ]
    circuits = [
        (*key, one.reason, one.since_ms, one.event_id, one.probing)
        for key, one in sorted(state.circuits.items())
    ]
    parts = ((_NAME, FORMAT, state.count), heads, health, circuits, sorted(state.spent))
    return b"\n".join([*map(orjson.dumps, parts), *(one.raw for one in entries)])


def registry_from(content: bytes) -> RegistryState:
    """The state that `registry_bytes` has written.

    Raises:
        ValueError: the bytes are no state of this format.
    """
    lines = content.split(b"\n")
    if len(lines) < _HEAD:
        raise ValueError("it is no state of a registry")
    name, heads, health, circuits, spent = (orjson.loads(line) for line in lines[:_HEAD])
    if not isinstance(name, list) or name[:2] != [_NAME, FORMAT] or len(heads) != len(lines) - _HEAD:
        raise ValueError(f"it is no state of a registry in format {FORMAT}")
    state = RegistryState()
    state.count, state.spent = name[2], set(spent)
    for agent_id, *rest in health:
        state.put_health(agent_id, Health(*rest))
    state.circuits = {(agent_id, id): Circuit(*rest) for agent_id, id, *rest in circuits}
    state.put_all(Entry._make((*head, raw)) for head, raw in zip(heads, lines[_HEAD:], strict=True))
    return state
