"""`ContentStore`: bytes by their SHA-256, written once, verified whenever they are read.

A name is only ever a hash of 64 hexadecimal digits, so no name leads out of the store. Who knows a hash has
had the content, or was given the hash: it cannot be guessed. Each agent has a store of its own all the same,
so that a hash which one agent tells another opens nothing there.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import ToolExecutionError, ToolInputError
from noesium_stream.event.envelope_fields import short
from noesium_stream.tool.content.place import ContentPlace, FolderPlace

MAX_CONTENT: Final = 64 * 1024 * 1024
"""Bytes of one content."""

_HASH: Final = re.compile(r"[0-9a-f]{64}")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class ContentRef:
    """What names a content.

    Attributes:
        hash: its SHA-256, in hexadecimal digits.
        size: its length in bytes.
        media_type: what its writer says that it is.
    """

    hash: str
    size: int
    media_type: str

    def as_json(self) -> dict[str, Any]:
        """The reference as a JSON object."""
        return asdict(self)


class ContentStore:
    """Contents in a folder, or below a URL that fsspec knows (`s3://BUCKET/PATH`).

    Args:
        where: the folder or the URL. Nothing is made or opened before the first content is written.

    Raises:
        ConfigError: from the first use: the URL cannot be used.
    """

    def __init__(self, where: Path | str) -> None:
        self._where = where
        self._opened: ContentPlace | None = None

    def put(self, data: bytes, media_type: str = "application/octet-stream") -> ContentRef:
        """Store bytes. Idempotent; a stored content that was damaged is repaired.

        Raises:
            ToolExecutionError: there are over `MAX_CONTENT` bytes, or the store cannot be written.
        """
        if len(data) > MAX_CONTENT:
            raise ToolExecutionError(
                f"A content of {len(data):,} bytes is too large; at most {MAX_CONTENT:,} can be stored."
            )
        digest = hashlib.sha256(data).hexdigest()
        if self._place.read(digest, len(data) + 1) != data:
            self._place.write(digest, data)
        return ContentRef(digest, len(data), media_type)

    def get(self, ref: ContentRef | str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of a content, verified: `length` of them from `offset`, or up to its end.

        Raises:
            ToolInputError: there is no such content, or that is no hash.
            ToolExecutionError: it was changed, or the store cannot be read.
        """
        digest = ref.hash if isinstance(ref, ContentRef) else ref
        if _HASH.fullmatch(digest) is None:
            raise ToolInputError(f"{short(digest)} is no hash of a content: it has not 64 digits 0-9a-f.")
        data = self._place.read(digest, MAX_CONTENT + 1)
        if data is None:
            raise ToolInputError(f"There is no content {digest} here.", hint="Give a hash from a result.")
        if hashlib.sha256(data).hexdigest() != digest:
            raise ToolExecutionError(
                f"The content {digest} was changed in its store.", hint="Have the result made again."
            )
        offset = max(offset, 0)
        return data[offset : None if length is None else offset + max(length, 0)]

    @property
    def _place(self) -> ContentPlace:
        if self._opened is None:
            where = self._where
            if isinstance(where, str) and _URL.match(where) and not where.startswith("file://"):
                module = importlib.import_module("noesium_stream.tool.content.url_place")
                self._opened = module.UrlPlace(where)
            else:
                self._opened = FolderPlace(Path(str(where).removeprefix("file://")).absolute())
        place: ContentPlace = self._opened
        return place
