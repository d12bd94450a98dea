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
MAX_NAME: Final = 4_096
"""Characters of a name, an id or a key: far more than any has, and few enough for all that repeat it."""
MAX_AGENT_TYPE: Final = 63
"""Characters of an agent type: it is a part of its topics' names."""
MAX_VERSION: Final = 256
"""Characters of a version or of a range of versions, as in npm."""
MAX_EVENT_TYPE: Final = 255
"""Characters of an event type."""
MAX_TEXT: Final = 1_048_576
"""Characters of a text for people, and of encoded bytes: no log takes a larger record."""
MAX_LISTED: Final = 1_048_576
"""Items of a list, and fields of an object: no log takes a record that could hold more."""
MAX_PATH: Final = 100
"""Runs that call one another: far more than an owner takes (`event/rules/call_limits.py`)."""
