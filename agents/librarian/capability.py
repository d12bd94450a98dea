"""What the librarian offers: `corpus.search`, with its whole schemas."""

from __future__ import annotations

from typing import Any, Final

from noesium_stream.event.standard import (
    Capability,
    CapabilityType,
    DeterminismClass,
    LatencyClass,
    SideEffectClass,
)

DEFAULT_LIMIT: Final = 12
MOST_PASSAGES: Final = 100

_LINE: Final = {"type": ["integer", "null"], "minimum": 1}
_SHARE: Final = {"type": "number", "minimum": 0}
_UNIT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["kind", "text", "first", "last", "group", "coverage", "closeness"],
    "properties": {
        "kind": {"enum": ["prose", "item", "term", "head", "row", "code"]},
        "text": {"type": "string"},
        "first": {"type": "integer", "description": "First line in the file, from 1; 0 in a PDF."},
        "last": {"type": "integer", "description": "Last line in the file; 0 in a PDF."},
        "group": {"type": "integer", "description": "The same for units of one paragraph, table or term."},
        "coverage": _SHARE,
        "closeness": {"type": "number", "description": "Cosine of the meanings of unit and query."},
    },
}
_PASSAGE: Final[dict[str, Any]] = {
    "type": "object",
    "required": [
        "passage_id",
        "path",
        "title",
        "heading",
        "start_line",
        "end_line",
        "page",
        "text",
        "score",
        "coverage",
        "units",
    ],
    "properties": {
        "passage_id": {"type": "string", "description": "The same for the same text in the same place."},
        "path": {"type": "string", "description": "Relative to the corpus' folder, with `/`."},
        "title": {"type": "string"},
        "heading": {"type": "string", "description": "Headings above the passage, joined by ` > `."},
        "start_line": {**_LINE, "description": "First line in the file, from 1; null in a PDF."},
        "end_line": {**_LINE, "description": "Last line in the file; null in a PDF."},
        "page": {**_LINE, "description": "Page of a PDF, from 1; null elsewhere."},
        "text": {"type": "string", "description": "Without markup."},
        "score": {
            "type": "number",
            "description": "By words and by meaning; higher is better; compares within one search only.",
        },
        "coverage": {**_SHARE, "description": "Share of the query's weight that it speaks of."},
        "units": {"type": "array", "minItems": 1, "items": _UNIT, "description": "What it consists of."},
    },
}

_EARLIER: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["since", "same"],
    "properties": {
        "since": {"type": "string", "format": "date", "description": "When this was answered last."},
        "same": {"type": "boolean", "description": "Whether by the same passages."},
    },
    "description": "Of a librarian that remembers, if it has answered this query before.",
}

CORPUS_SEARCH: Final = Capability(
    id="corpus.search",
    version="2.1.0",
    description="Finds the passages of a folder of documents for a query, by its words and by its meaning.",
    capability_type=CapabilityType.SUBAGENT,
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["query"],
        "properties": {
            "query": {"type": "string", "minLength": 1, "description": 'A question, words or "phrases".'},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_PASSAGES, "default": DEFAULT_LIMIT},
            "corpus": {
                "type": ["string", "null"],
                "default": None,
                "description": "Id of a corpus that was indexed here; null for the librarian's own.",
            },
        },
        "additionalProperties": False,
    },
    output_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["corpus", "documents", "passage_count", "skipped", "counts", "passages"],
        "properties": {
            "corpus": {"type": "string"},
            "documents": {"type": "integer", "minimum": 0, "description": "In the corpus."},
            "passage_count": {"type": "integer", "minimum": 0, "description": "In the corpus."},
            "skipped": {"type": "integer", "minimum": 0, "description": "Files that could not be read."},
            "counts": {
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": 0},
                "description": "In how many passages each word or phrase of the query occurs.",
            },
            "passages": {"type": "array", "items": _PASSAGE, "description": "Best first."},
            "earlier": _EARLIER,
        },
    },
    side_effects=SideEffectClass.PURE,
    latency_class=LatencyClass.MEDIUM,
    # it depends on the index, which follows the documents
    determinism_class=DeterminismClass.NONDETERMINISTIC,
    tags=["search", "documents"],
)
