"""Projections that come with the package (RFC-0004 §4.3, RFC-1001 §8.3)."""

from noesium_stream.projection.shipped.execution import ExecutionProjection
from noesium_stream.projection.shipped.execution_state import AgentState, ExecutionState, RunState

__all__ = ["AgentState", "ExecutionProjection", "ExecutionState", "RunState"]
