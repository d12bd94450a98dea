"""What agents remember (RFC-0004 §5, RFC-1001 §9): derived from events, never mutated."""

from noesium_stream.memory.durable import DurableMemory
from noesium_stream.memory.ephemeral import EphemeralMemory
from noesium_stream.memory.item import MemoryFilter, MemoryItem
from noesium_stream.memory.langgraph_store import LogStore
from noesium_stream.memory.manager import MemoryManager
from noesium_stream.memory.open import memory_of
from noesium_stream.memory.semantic import SearchResult, SemanticMemory
from noesium_stream.memory.vector import LogVectorStore

__all__ = [
    "DurableMemory",
    "EphemeralMemory",
    "LogStore",
    "LogVectorStore",
    "MemoryFilter",
    "MemoryItem",
    "MemoryManager",
    "SearchResult",
    "SemanticMemory",
    "memory_of",
]
