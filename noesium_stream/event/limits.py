"""How large an event may be: what exceeds these is refused before memory is spent on it."""

from __future__ import annotations

from typing import Final

MAX_RECORD_BYTES: Final = 16 * 1024 * 1024
"""An encoded event; sixteen times what a broker takes by default, so that the log decides first."""
MAX_ITEMS: Final = 1_000
"""Elements of all Avro arrays and maps of one event together; payloads are JSON and do not count."""
MAX_AVRO_DEPTH: Final = 32
"""Records, unions and containers within one another in a writer schema."""
MAX_JSON_DEPTH: Final = 254
"""Objects and arrays within one another in payload, metadata or an extension: what orjson writes."""
