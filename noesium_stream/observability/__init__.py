"""Metrics and traces for monitoring (RFC-1001 §15)."""

from noesium_stream.observability.metrics import (
    capability_resolution_duration,
    events_emitted,
    events_processed,
    kernel_node_duration,
    llm_tokens_used,
    projection_rebuild_duration,
)

__all__ = [
    "capability_resolution_duration",
    "events_emitted",
    "events_processed",
    "kernel_node_duration",
    "llm_tokens_used",
    "projection_rebuild_duration",
]
