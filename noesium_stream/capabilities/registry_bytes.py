"""The registry's state as canonical bytes: equal states have equal bytes, in every process.

    ["noesium-registry", FORMAT, COUNT]
    [[agent id, agent type, capability id, version, order, event id, deprecation, deprecated by], …]
    [[agent id, reason, since_ms, unavailable by, recovered by], …]
    [spent event ids]
    and a line for each entry of the second line: the capability as canonical JSON

Reading it back parses no capability, so that a registry of any size is there at once.
"""

from __future__ import annotations

from typing import Final

import orjson

from noesium_stream.capabilities.state import Entry, Health, RegistryState

FORMAT: Final = 1
"""Version of the state and of its meaning; raise it when the fold changes."""

_NAME: Final = "noesium-registry"


def registry_bytes(state: RegistryState) -> bytes:
    """The state as canonical bytes."""
    entries = list(state.entries())
    heads = [one[:-1] for one in entries]
    health = [
        (agent_id, one.reason, one.since_ms, one.unavailable_by, one.recovered_by)
        for agent_id, one in sorted(state.health.items())
    ]
    parts = ((_NAME, FORMAT, state.count), heads, health, sorted(state.spent))
    return b"\n".join([*map(orjson.dumps, parts), *(one.raw for one in entries)])


def registry_from(content: bytes) -> RegistryState:
    """The state that `registry_bytes` has written.

    Raises:
        ValueError: the bytes are no state of this format.
    """
    lines = content.split(b"\n")
    if len(lines) < 4:
        raise ValueError("it is no state of a registry")
    name, heads, health, spent = (orjson.loads(line) for line in lines[:4])
    if not isinstance(name, list) or name[:2] != [_NAME, FORMAT] or len(heads) != len(lines) - 4:
        raise ValueError(f"it is no state of a registry in format {FORMAT}")
    state = RegistryState()
    state.count, state.spent = name[2], set(spent)
    for agent_id, *rest in health:
        state.put_health(agent_id, Health(*rest))
    state.put_all(Entry._make((*head, raw)) for head, raw in zip(heads, lines[4:], strict=True))
    return state
