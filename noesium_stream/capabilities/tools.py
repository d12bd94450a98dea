"""Tools as capabilities, which other agents call by `Step.call_tool` (RFC-2003 §8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noesium_stream.event.rules.agent_calls import tool_capability_id
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

    The tool's arguments are the input of its run; the run's result is the tool's. Without schemas any input
    and output is allowed.

    Raises:
        ConfigError: a name is not valid for a toolkit or a tool.
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
