"""The search for texts, byte by byte: in files, and in the records of a log."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from noesium_stream.client.erasure.file_reader import FileReader
from noesium_stream.client.erasure.survey import place_of, records_of
from noesium_stream.errors import ErasureError
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.log.sqlite.contents import contents_of_blocks

MOST_FOUND: Final = 100
_PIECE: Final = 48
"""Characters of a piece: of a longer text its first, middle and last ones are looked for."""
_SHOWN: Final = 40


class Found(NamedTuple):
    """A text that is readable: where, and the text's beginning."""

    place: str
    text: str


@dataclass
class Scanned:
    """What was searched, and what was found (at most 100).

    Attributes:
        texts: how many texts were looked for.
        records: records of the log.
        topics: its topics.
        record_bytes: bytes of keys, headers and values.
        files: files.
        file_bytes: their bytes.
        found: the texts that are readable.
    """

    texts: int = 0
    records: int = 0
    topics: set[str] = field(default_factory=set)
    record_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    found: list[Found] = field(default_factory=list)

    def add(self, place: str, text: str) -> None:
        """Note a text that was found."""
        if len(self.found) < MOST_FOUND:
            self.found.append(Found(place, text))


class Needles:
    """Texts in all forms in which a file or a record may have them: UTF-8, escaped in JSON, in base64."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(dict.fromkeys(texts))
        forms: dict[bytes, str] = {}
        for text in self.texts:
            for piece in _pieces(text):
                for form in _forms(piece):
                    forms.setdefault(form, text[:_SHOWN])
        self._forms = tuple(forms.items())
        self.longest = max((len(form) for form, _ in self._forms), default=0)

    def within(self, data: bytes) -> list[str]:
        """The texts that some bytes contain, in the order in which they were given, each once."""
        return list(dict.fromkeys(text for form, text in self._forms if form in data))


async def scan_log(log: EventLog, needles: Needles, scanned: Scanned) -> None:
    """Search every record of a log.

    Raises:
        LogUnavailableError
    """
    async for record in records_of(log):
        data = _bytes_of(record)
        scanned.records += 1
        scanned.record_bytes += len(data)
        scanned.topics.add(record.topic)
        for text in needles.within(data):
            scanned.add(f"{place_of(record)} {record.event_type}", text)


def scan_files(paths: Iterable[Path], needles: Needles, scanned: Scanned) -> None:
    """Search files; no lock that this process has of one is lost.

    Raises:
        ErasureError: one cannot be read.
    """
    with FileReader() as reader:
        _scan_files(reader, paths, needles, scanned)


def _scan_files(reader: FileReader, paths: Iterable[Path], needles: Needles, scanned: Scanned) -> None:
    for path in paths:
        found: dict[str, None] = {}
        try:
            for piece in _overlapping(reader.pieces(path), needles.longest):
                found.update(dict.fromkeys(needles.within(piece)))
            scanned.file_bytes += path.stat().st_size
        except FileNotFoundError:
            continue  # it was removed meanwhile
        except OSError as error:
            raise ErasureError(f"{path} cannot be searched: {error.strerror}.") from error
        scanned.files += 1
        for text in found:
            scanned.add(str(path), text)


def scan_blocks(path: Path, needles: Needles, scanned: Scanned) -> None:
    """Search what a SQLite log has compressed, of all its topics; what is found is found in the file.

    Raises:
        LogCorruptError, LogUnavailableError
    """
    found: dict[str, None] = {}
    for content in contents_of_blocks(path):
        found.update(dict.fromkeys(needles.within(content)))
    for text in found:
        if Found(str(path), text) not in scanned.found:
            scanned.add(str(path), text)


def files_in(folders: Iterable[Path]) -> list[Path]:
    """All regular files in and below folders, or that are given; by name, links are not followed."""
    found: set[Path] = set()
    for folder in folders:
        if folder.is_file():
            found.add(folder.resolve())
        for root, _, names in os.walk(folder):
            found.update(Path(root, name) for name in names if _is_regular(Path(root, name)))
    return sorted(found)


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _overlapping(pieces: Iterable[bytes], overlap: int) -> Iterator[bytes]:
    """Pieces of which each begins with the end of the one before."""
    tail = b""
    for data in pieces:
        piece = tail + data
        yield piece
        tail = piece[-overlap:] if overlap else b""


def _bytes_of(record: Record) -> bytes:
    headers = (part for name, value in record.raw_headers for part in (name.encode(), value or b""))
    return b"\n".join((record.key.encode(errors="surrogatepass"), *headers, record.value))


def _pieces(text: str) -> Sequence[str]:
    if len(text) <= _PIECE:
        return (text,)
    middle = (len(text) - _PIECE) // 2
    return text[:_PIECE], text[middle : middle + _PIECE], text[-_PIECE:]


def _forms(text: str) -> Iterator[bytes]:
    data = text.encode(errors="surrogatepass")
    yield data
    yield orjson.dumps(text)[1:-1] if text.isprintable() or max(text) < "\ud800" else data
    yield json.dumps(text)[1:-1].encode()
    for shift in range(3):  # within a longer text, base64 of it begins at one of three places
        whole = base64.b64encode(bytes(shift) + data)
        start = 0 if shift == 0 else 4
        yield whole[start : len(whole) - 4] if len(whole) - 4 > start + 4 else whole
