"""The partition of a key is the one of Kafka's own murmur2, for every key."""

from __future__ import annotations

from aiokafka.partitioner import murmur2
from hypothesis import example, given
from hypothesis import strategies as st

from noesium_stream.log.topics import partition_of


def reference(data: bytes) -> int:
    """`org.apache.kafka.common.utils.Utils.murmur2`, unsigned, word by word."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if length != whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@given(st.binary(max_size=200))
def test_the_hash_of_any_bytes_is_kafkas(data: bytes) -> None:
    assert murmur2(data) == reference(data)


@given(st.text(max_size=60), st.integers(1, 10_000))
@example("", 8)
@example("ключ-größe-鍵-🗝", 8)
def test_a_key_lies_where_kafkas_hash_says(key: str, partitions: int) -> None:
    assert partition_of(key, partitions) == (reference(key.encode()) & 0x7FFFFFFF) % partitions
