"""Facts, preferences and events from conversations, into memory (RFC-1001 §5, `memu`)."""

from noesium_stream.memory.extraction.ingest import Ingested, ingest
from noesium_stream.memory.extraction.model import ModelExtractor
from noesium_stream.memory.extraction.rules import RuleExtractor
from noesium_stream.memory.extraction.turn import Extracted, MemoryExtractor, Turn

__all__ = [
    "Extracted",
    "Ingested",
    "MemoryExtractor",
    "ModelExtractor",
    "RuleExtractor",
    "Turn",
    "ingest",
]
