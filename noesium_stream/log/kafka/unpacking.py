"""Batches that cannot be unpacked, or unpack to more than they may: read past, and told once.

A few kilobytes can unpack to gigabytes. librdkafka refuses zstd, lz4 and snappy beyond 100 MB, but not gzip:
there the limit is the broker's `message.max.bytes`, times 1,032 at most. aiokafka has no limit: its functions
are replaced by bounded ones.

A batch that is read past is no record: it leaves no dead letter, and is told in a line of the logger of this
module. In a journal the numbers of the records show that some are missing, which stops the partition.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final

import cramjam
import zstandard
from aiokafka import codec
from aiokafka.errors import KafkaError as AioKafkaError

MAX_BYTES: Final = 64 << 20
"""What a batch may unpack to, in bytes. A record has 1 MB at most, and a producer's batch a few."""

_MODULES: Final = ("aiokafka.record.default_records", "aiokafka.record._crecords.default_records")
_GZIP: Final = 31
_MOST_OF_LZ4: Final = 255
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = 16
"""Bytes before the first block: the mark above, and two numbers of versions."""
_LOGGER: Final = logging.getLogger(__name__)


class UnpackError(AioKafkaError):
    """A compressed batch is damaged, or would unpack to more than `MAX_BYTES`."""


def unpack_gzip(data: bytes) -> bytes:
    """Unpack gzip. Raises `UnpackError`."""
    unpacker = zlib.decompressobj(_GZIP)
    try:
        found = unpacker.decompress(bytes(data), MAX_BYTES)
    except zlib.error as error:
        raise UnpackError(str(error)) from error
    if not unpacker.eof:
        raise UnpackError("it is too large, or cut off")
    return found


def unpack_zstd(data: bytes) -> bytes:
    """Unpack zstd. Raises `UnpackError`."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            found = reader.read(MAX_BYTES + 1)
    except zstandard.ZstdError as error:
        raise UnpackError(str(error)) from error
    return _checked(found)


def unpack_lz4(data: bytes) -> bytes:
    """Unpack lz4, which unpacks to 255 times its size at most. Raises `UnpackError`."""
    if len(data) * _MOST_OF_LZ4 <= 4 * MAX_BYTES:
        return _by(codec.lz4_decode, data)
    return _by(_lz4_into_room, data)


def unpack_snappy(data: bytes) -> bytes:
    """Unpack snappy, bare or in the blocks of the Java client. Raises `UnpackError`."""
    return _by(_snappy_of_known_length, data)


def _snappy_of_known_length(data: bytes) -> bytes:
    """The sizes that the blocks name at their heads are added up before one of them is unpacked."""
    if sum(map(cramjam.snappy.decompress_raw_len, _snappy_blocks(data))) > MAX_BYTES:
        raise UnpackError("it is too large")
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in _snappy_blocks(data))


def _snappy_blocks(data: bytes) -> Iterator[memoryview]:
    rest = memoryview(data)
    if bytes(rest[: len(_XERIAL)]) != _XERIAL:
        yield rest
        return
    rest = rest[_XERIAL_HEAD:]
    while rest:
        (size,) = struct.unpack_from("!I", rest)
        yield rest[4 : 4 + size]
        rest = rest[4 + size :]


def _lz4_into_room(data: bytes) -> bytes:
    room = bytearray(MAX_BYTES)
    return bytes(memoryview(room)[: cramjam.lz4.decompress_into(data, room)])


def bound_aiokafka() -> None:
    """Let aiokafka unpack batches by these functions; again it changes nothing."""
    for name in _MODULES:
        module = import_module(name)
        for unpack in (unpack_gzip, unpack_zstd, unpack_lz4, unpack_snappy):
            setattr(module, f"{unpack.__name__.removeprefix('unpack_')}_decode", unpack)


def say_passed_over(topic: str, partition: int, offset: int) -> None:
    """Tell people that a batch was read past."""
    _LOGGER.warning(
        "%s/%d@%d: a batch of records is damaged, or unpacks to too much, and is passed over",
        topic,
        partition,
        offset,
    )


def _by(unpack: Callable[[bytes], bytes], data: bytes) -> bytes:
    try:
        found = unpack(data)
    except Exception as error:  # the library's own kinds, for what is damaged or has no room
        raise UnpackError(type(error).__name__) from error
    return _checked(found)


def _checked(found: bytes) -> bytes:
    if len(found) > MAX_BYTES:
        raise UnpackError("it is too large")
    return found
