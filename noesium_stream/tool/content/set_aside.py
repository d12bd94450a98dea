"""Large results: the whole in a content store, its head and its hash in the event."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from noesium_stream.tool.content.store import ContentStore

LIMIT_BYTES: Final = 32_768
"""A result whose JSON text is longer is set aside."""
HEAD: Final = 2_000
"""Characters of a content that stay in the event."""
REFERENCE: Final = "$content"

JSON_TEXT: Final = "application/json"
PLAIN_TEXT: Final = "text/plain"


async def set_aside(value: Any, store: ContentStore, limit_bytes: int = LIMIT_BYTES) -> Any:
    """The value, or what stands for it if its JSON text is longer than the limit.

    The stand-in is `{"$content": {"hash", "size", "media_type"}, "head", "note"}`. A string is stored as its
    text, any other value as JSON text with sorted keys.

    Args:
        value: a JSON value.
        store: keeps large ones.
        limit_bytes: of the JSON text.

    Raises:
        ToolExecutionError: the value is too large for the store, or the store cannot be written.
    """
    written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    if len(written) <= limit_bytes:
        return value
    data, media_type = written, JSON_TEXT
    if isinstance(value, str):
        data, media_type = value.encode(), PLAIN_TEXT
    ref = await asyncio.to_thread(store.put, data, media_type)
    return {
        REFERENCE: ref.as_json(),
        "head": data[: 4 * HEAD].decode(errors="ignore")[:HEAD],
        "note": f"This is the beginning of {ref.size} bytes; read_content reads all of it by its hash.",
    }
