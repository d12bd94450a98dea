"""Tools as capabilities: what an agent declares to be asked by `Step.call_tool` (RFC-2003 §8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noesium_stream.event.calls import tool_capability_id
from noesium_stream.event.standard import Capability, CapabilityType, SideEffectClass


def tool_capability(
    toolkit: str,
    tool: str,
    *,
    version: str = "1.0.0",
    description: str = "",
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    side_effects: SideEffectClass = SideEffectClass.EXTERNAL,
) -> Capability:
    """The capability `tool.TOOLKIT.TOOL`, for the `capabilities` of an agent whose graph serves the tool.

    A run for it begins with the tool's arguments as its input; its result is the tool's. Without schemas it
    takes and gives anything.

    Raises:
        ConfigError: a name cannot be that of a toolkit or a tool.
    """
    return Capability(
        id=tool_capability_id(toolkit, tool),
        version=version,
        description=description,
        capability_type=CapabilityType.REMOTE_TOOL,
        input_schema=dict(input_schema or {}),
        output_schema=dict(output_schema or {}),
        side_effects=side_effects,
        tags=[f"toolkit:{toolkit}"],
    )
