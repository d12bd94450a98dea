"""Bytes to text, for files that may have any encoding."""

from __future__ import annotations

import codecs
import re
import zlib

from agents.documents.blocks import BinaryError, DamagedError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
MOST_UNPACKED = 20 * 1024 * 1024
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def decode(data: bytes, declared: str | None = None) -> str:
    """The text of a file: by its byte order mark, else as UTF-8, else as `declared`, else Windows-1252.

    Raises:
        BinaryError: it is no text in any of these.
    """
    text = _decode(data, declared)
    if "\0" in text[:65536] or len(_CONTROL.findall(text[:65536])) > len(text[:65536]) * 0.01:
        raise BinaryError
    return text.replace("\0", "�")


def gunzip(data: bytes, most: int = MOST_UNPACKED) -> bytes:
    """The bytes of a gzip file.

    Raises:
        DamagedError: it is damaged, or unpacks to more than `most` bytes.
    """
    unpacker = zlib.decompressobj(31)
    try:
        found = unpacker.decompress(data, most)
    except zlib.error as error:
        raise DamagedError("its compressed bytes are broken") from error
    if not unpacker.eof:
        raise DamagedError("it is cut off, or unpacks to too much")
    return found


def split_lines(text: str) -> list[str]:
    """The lines as editors number them: only LF, CR LF and CR end a line."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _decode(data: bytes, declared: str | None) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode("utf-8-sig" if encoding == "utf-8" else encoding, "replace").lstrip("\ufeff")
    if b"\0" in data[:65536]:
        raise BinaryError
    for candidate in ("utf-8", declared):
        if candidate is not None:
            try:
                return data.decode(candidate)
            except (UnicodeDecodeError, LookupError):
                continue
    return data.decode("cp1252", "replace")
