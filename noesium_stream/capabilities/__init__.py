"""Capabilities: their registry, and the choice of a provider (RFC-0005)."""

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.capabilities.resolution import DeterministicResolver
from noesium_stream.capabilities.state import CapabilityProjection, Entry, RegistryState
from noesium_stream.capabilities.tools import tool_capability
from noesium_stream.capabilities.version import in_range
from noesium_stream.event.standard import (
    Capability,
    CapabilityType,
    DeterminismClass,
    LatencyClass,
    SideEffectClass,
)

__all__ = [
    "Capability",
    "CapabilityProjection",
    "CapabilityRegistry",
    "CapabilityType",
    "DeterminismClass",
    "DeterministicResolver",
    "Entry",
    "LatencyClass",
    "RegistryState",
    "SideEffectClass",
    "in_range",
    "tool_capability",
]
