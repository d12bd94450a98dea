"""The partition of a key is the one of Kafka's own murmur2, for every key."""

from __future__ import annotations

from aiokafka.partitioner import murmur2 as reference
from hypothesis import example, given
from hypothesis import strategies as st

from noesium_stream.log.topics import murmur2, partition_of


@given(st.binary(max_size=200))
def test_the_hash_of_any_bytes_is_kafkas(data: bytes) -> None:
    assert murmur2(data) == reference(data)


@given(st.text(max_size=60), st.integers(1, 10_000))
@example("", 8)
@example("ключ-größe-鍵-🗝", 8)
def test_a_key_lies_where_kafkas_hash_says(key: str, partitions: int) -> None:
    assert partition_of(key, partitions) == (reference(key.encode()) & 0x7FFFFFFF) % partitions
