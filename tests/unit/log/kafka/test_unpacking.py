"""Compressed batches: what is small packed and large unpacked costs no memory."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import aiokafka.record.default_records as records
import cramjam
import pytest
import zstandard
from aiokafka import codec

from noesium_stream.log.kafka.unpacking import (
    MAX_BYTES,
    UnpackError,
    bound_aiokafka,
    unpack_gzip,
    unpack_lz4,
    unpack_snappy,
    unpack_zstd,
)

HUGE = 1_500_000_000
CHUNK = bytes(1 << 20)
PACKED: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "gzip": (gzip.compress, unpack_gzip),
    "zstd": (codec.zstd_encode, unpack_zstd),
    "lz4": (codec.lz4_encode, unpack_lz4),
    "snappy": (codec.snappy_encode, unpack_snappy),
}


@contextmanager
def peak(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("data", [b"a", bytes(range(256)) * 4_000])
def test_what_is_packed_unpacks(name: str, data: bytes) -> None:
    pack, unpack = PACKED[name]
    assert unpack(pack(data)) == data


def test_a_bomb_of_zstd_is_refused() -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    bomb = b"".join(packer.compress(CHUNK) for _ in range(HUGE // len(CHUNK))) + packer.flush()
    assert len(bomb) < 200_000
    with peak(3 * MAX_BYTES), pytest.raises(UnpackError):
        unpack_zstd(bomb)


def test_a_bomb_of_gzip_is_refused() -> None:
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(CHUNK) for _ in range(HUGE // len(CHUNK))) + packer.flush()
    with peak(3 * MAX_BYTES), pytest.raises(UnpackError):
        unpack_gzip(bomb)


def test_a_bomb_of_lz4_is_refused() -> None:
    bomb = bytes(cramjam.lz4.compress(bytes(300 << 20)))
    with peak(3 * MAX_BYTES), pytest.raises(UnpackError):
        unpack_lz4(bomb)


@pytest.mark.parametrize("xerial", [False, True])
def test_a_bomb_of_snappy_is_refused_before_it_is_unpacked(xerial: bool) -> None:
    bomb = bytes(codec.snappy_encode(bytes(300 << 20), xerial_compatible=xerial))
    assert len(bomb) < 300 << 16
    with peak(MAX_BYTES), pytest.raises(UnpackError):
        unpack_snappy(bomb)


def test_a_size_that_snappy_only_claims_takes_no_room() -> None:
    with peak(1 << 20), pytest.raises(UnpackError):
        unpack_snappy(b"\xff\xff\xff\xff\x0f")


@pytest.mark.parametrize("name", PACKED)
def test_a_batch_that_is_large_packed_is_no_bomb(name: str) -> None:
    """Brokers may be set to take batches of many megabytes."""
    pack, unpack = PACKED[name]
    data = random.Random(1).randbytes(9 << 20)
    assert unpack(pack(data)) == data


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\xff\xff\xff\xff",
        b"\x28\xb5\x2f\xfd\xff",
    ],
)
def test_what_is_damaged_is_one_kind_of_error(name: str, data: bytes) -> None:
    _, unpack = PACKED[name]
    try:
        assert unpack(data) == b""
    except UnpackError:
        return


def test_aiokafka_unpacks_by_these() -> None:
    bound_aiokafka()
    bound_aiokafka()
    assert records.zstd_decode is unpack_zstd
    assert records.gzip_decode is unpack_gzip
