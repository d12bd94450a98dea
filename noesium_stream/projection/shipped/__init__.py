"""Projections that come with the package (RFC-0004 §4.3, RFC-1001 §8.3)."""

from noesium_stream.projection.shipped.cognitive import CognitiveProjection
from noesium_stream.projection.shipped.cognitive_state import CognitiveState, MemoryItem, RunMind
from noesium_stream.projection.shipped.execution import ExecutionProjection
from noesium_stream.projection.shipped.execution_state import AgentState, ExecutionState, RunState
from noesium_stream.projection.shipped.index import IndexProjection
from noesium_stream.projection.shipped.semantic import Embedder, SemanticIndex, SemanticProjection
from noesium_stream.projection.shipped.semantic_store import Hit

__all__ = [
    "AgentState",
    "CognitiveProjection",
    "CognitiveState",
    "Embedder",
    "ExecutionProjection",
    "ExecutionState",
    "Hit",
    "IndexProjection",
    "MemoryItem",
    "RunMind",
    "RunState",
    "SemanticIndex",
    "SemanticProjection",
]
