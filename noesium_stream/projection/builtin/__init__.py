"""Projections that come with the package (RFC-0004 §4.3, RFC-1001 §8.3)."""

from noesium_stream.projection.builtin.cognitive import CognitiveProjection
from noesium_stream.projection.builtin.cognitive_state import CognitiveState, MemoryItem, RunMind
from noesium_stream.projection.builtin.execution import ExecutionProjection
from noesium_stream.projection.builtin.execution_state import AgentState, ExecutionState, RunState
from noesium_stream.projection.builtin.index import IndexProjection
from noesium_stream.projection.builtin.semantic import Embedder, SemanticIndex, SemanticProjection
from noesium_stream.projection.builtin.semantic_store import Hit

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
