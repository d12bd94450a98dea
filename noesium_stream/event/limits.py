"""Size limits of events: larger ones are refused before memory is allocated for them."""

from __future__ import annotations

from typing import Final

MAX_RECORD_BYTES: Final = 16 * 1024 * 1024
"""Size of an encoded event: sixteen times a broker's default, so that the log's limit applies first."""
MAX_ITEMS: Final = 1_000
"""Total elements of all Avro arrays and maps of one event. Payloads are JSON and do not count."""
MAX_AVRO_DEPTH: Final = 32
"""Nesting depth of records, unions and containers in a writer schema."""
MAX_JSON_DEPTH: Final = 254
"""Nesting depth of objects and arrays in payload, metadata or an extension: orjson's limit."""
