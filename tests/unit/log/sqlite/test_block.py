"""A block's layout: what goes in comes out, and nothing that is damaged or too large is unpacked."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zstandard import ZstdCompressor

from noesium_stream.log.prepare import Prepared, header_text
from noesium_stream.log.sqlite import block as blocks
from noesium_stream.log.sqlite.block import cut_row, is_block, pack_block, part_of, unpack_block
from noesium_stream.log.sqlite.chunk import ChunkDamagedError, pack, repack, unpack, unpack_body
from tests.support.events import counted
from tests.unit.log.sqlite.test_chunk import NoDecoder, records

TEXT = header_text(counted(1))
chunks = st.lists(st.lists(records, min_size=1, max_size=4), min_size=1, max_size=5)


def block_of(groups: list[list[Prepared]]) -> tuple[bytes, list[bytes]]:
    packed = [pack(group, b"c-%d" % number)[0] for number, group in enumerate(groups)]
    parts = [part_of(1000 + number, *chunk) for number, chunk in enumerate(packed)]
    return pack_block(parts), [data for _, data in packed]


def sealed(rest: bytes) -> bytes:
    """A block with a sound sum, whatever it holds."""
    return struct.pack("<I", crc32(rest) ^ 0xFFFFFFFF) + rest


def head(count: int, size: int, layout: int = 1) -> bytes:
    return struct.pack("<2sBII", b"\xff\xff", layout, count, size)


@given(chunks)
def test_chunks_come_out_as_they_went_in(groups: list[list[Prepared]]) -> None:
    block, packed = block_of(groups)
    assert is_block(block)
    assert not any(map(is_block, packed))
    parts = unpack_block(block)
    assert [(part.timestamp_ms, part.records) for part in parts] == [
        (1000 + number, len(group)) for number, group in enumerate(groups)
    ]
    for part, chunk in zip(parts, packed, strict=True):
        found = unpack_body(part.body, ("t", 0, 7, 9), 0, None, NoDecoder())
        whole = unpack(chunk, ("t", 0, 7, 9), 0, None, NoDecoder())
        assert [(r.offset, r.key, r.headers, r.value) for r in found] == [
            (r.offset, r.key, r.headers, r.value) for r in whole
        ]


@given(chunks, st.integers(0, 20))
def test_a_block_can_be_cut_anywhere(groups: list[list[Prepared]], drop: int) -> None:
    block, _ = block_of(groups)
    flat = [record for group in groups for record in group]
    drop = min(drop, len(flat) - 1)
    rest = [
        record
        for part in unpack_block(cut_row(block, drop))
        for record in unpack_body(part.body, ("t", 0, 0, 0), 0, None, NoDecoder())
    ]
    assert [(r.key, r.value) for r in rest] == [(r.key, r.value) for r in flat[drop:]]


def test_a_chunk_is_cut_as_a_chunk() -> None:
    [(_, data)] = pack([Prepared("t", 0, "k", TEXT, (), b"%d" % n) for n in range(3)])
    assert cut_row(data, 1) == repack(data, 1)


@given(st.data())
def test_any_flipped_bit_is_found(data: st.DataObject) -> None:
    block = bytearray(block_of([[Prepared("t", 0, "k", TEXT, (), b"value")]] * 3)[0])
    bit = data.draw(st.integers(0, len(block) * 8 - 1))
    block[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ChunkDamagedError):
        unpack_block(bytes(block))


def test_a_damaged_chunk_does_not_enter_a_block() -> None:
    [(_, data)] = pack([Prepared("t", 0, "k", TEXT, (), b"value")])
    with pytest.raises(ChunkDamagedError):
        part_of(0, 1, data[:-1] + b"!")


def test_releases_that_know_chunks_alone_take_a_block_for_a_damaged_one() -> None:
    block, _ = block_of([[Prepared("t", 0, "k", TEXT, (), b"value")]])
    with pytest.raises(ChunkDamagedError):
        unpack(block, ("t", 0, 0, 0), 0, None, NoDecoder())


@pytest.mark.parametrize("declared", [1 << 20, blocks.MAX_CONTENT_BYTES + 1, 1 << 28])
def test_a_block_larger_than_it_may_be_is_not_decompressed(
    declared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never() -> None:
        raise AssertionError("decompressed")

    monkeypatch.setattr(blocks, "_decompressor", never)
    bomb = ZstdCompressor(write_checksum=True).compress(bytes(1 << 28))
    with pytest.raises(ChunkDamagedError):
        unpack_block(sealed(head(0, declared) + bomb))


@pytest.mark.parametrize(
    ("count", "content"),
    [
        (1, b""),  # no room for the table
        (1, struct.pack("<qII", 0, 1, 5)),  # a chunk that is not there
        (1, struct.pack("<qII", 0, 1, 0) + b"more"),  # bytes of no chunk
        (4_000_000_000, bytes(16)),
    ],
)
def test_a_table_that_does_not_fit_its_content_is_damage(count: int, content: bytes) -> None:
    frame = ZstdCompressor(write_checksum=True).compress(content)
    with pytest.raises(ChunkDamagedError):
        unpack_block(sealed(head(count, len(content)) + frame))


@pytest.mark.parametrize(
    "frame", [b"", b"no zstd", ZstdCompressor(write_content_size=False).compress(b"x" * 16)]
)
def test_what_is_no_frame_of_a_known_size_is_damage(frame: bytes) -> None:
    with pytest.raises(ChunkDamagedError):
        unpack_block(sealed(head(1, 16) + frame))


def test_bytes_after_the_frame_are_damage() -> None:
    content = struct.pack("<qII", 0, 1, 0)
    with pytest.raises(ChunkDamagedError):
        unpack_block(sealed(head(1, len(content)) + ZstdCompressor().compress(content) + b"!"))


def test_a_layout_of_a_later_version_is_named() -> None:
    with pytest.raises(ChunkDamagedError, match="the layout 2"):
        unpack_block(sealed(head(0, 0, layout=2)))
