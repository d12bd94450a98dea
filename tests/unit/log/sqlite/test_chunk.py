"""The chunk's layout: what goes in comes out, and a filter looks at headers alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.prepare import Prepared, header_text, standard_headers
from noesium_stream.log.sqlite.chunk import ChunkDamagedError, pack, pack_one, repack, unpack
from tests.support.events import counted


class NoDecoder:
    record_verifier = None

    def decode(self, data: bytes) -> EventEnvelope:
        raise AssertionError("decoded")

    decode_unchecked = decode


EVENT = counted(1)
TEXT = header_text(EVENT)
extras = st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=40)), max_size=3).map(tuple)
records = st.builds(
    Prepared, st.just("t"), st.just(0), st.text(max_size=30), st.just(TEXT), extras, st.binary(max_size=60)
)


@given(st.lists(records, min_size=1, max_size=8), st.sampled_from([b"", b"commit-1"]), st.integers(0, 8))
def test_records_come_out_as_they_went_in(prepared: list[Prepared], commit_id: bytes, skip: int) -> None:
    [(count, data)] = pack(prepared, commit_id)
    assert count == len(prepared)
    read = unpack(data, ("t", 3, 100, 77), skip, None, NoDecoder())
    assert [record.offset for record in read] == list(range(100, 100 + count))[skip:]
    for index, (record, before) in enumerate(zip(read, prepared[skip:], strict=True), start=skip):
        assert (record.key, record.value, record.partition, record.timestamp_ms) == (
            before.key,
            before.value,
            3,
            77,
        )
        commit = [("noesium_commit", b"commit-1:%d:%d" % (index, count))] if commit_id else []
        assert record.headers == [*standard_headers(EVENT), *before.extra, *commit]
    if skip < count:
        rest = unpack(repack(data, skip), ("t", 3, 100 + skip, 77), 0, None, NoDecoder())
        assert [(r.offset, r.key, r.headers, r.value) for r in rest] == [
            (r.offset, r.key, r.headers, r.value) for r in read
        ]


@given(records, st.data())
def test_any_flipped_bit_is_found(record: Prepared, data: st.DataObject) -> None:
    chunk = bytearray(pack_one(record, b"commit-1"))
    bit = data.draw(st.integers(0, len(chunk) * 8 - 1))
    chunk[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ChunkDamagedError):
        unpack(bytes(chunk), ("t", 0, 0, 0), 0, None, NoDecoder())


def test_a_filter_decodes_nothing() -> None:
    [(_, data)] = pack([Prepared("t", 0, "k", TEXT, (), b"no envelope")] * 3)
    assert unpack(data, ("t", 0, 0, 0), 0, TypeFilter(["shop."]), NoDecoder()) == []
    assert len(unpack(data, ("t", 0, 0, 0), 0, TypeFilter(["demo."]), NoDecoder())) == 3


def test_many_records_become_several_chunks_of_one_commit() -> None:
    chunks = pack([Prepared("t", 0, "k", TEXT, (), b"x")] * 2500, b"c")
    assert [count for count, _ in chunks] == [1000, 1000, 500]
    last = unpack(chunks[2][1], ("t", 0, 2000, 0), 499, None, NoDecoder())
    assert last[0].headers[-1] == ("noesium_commit", b"c:2499:2500")
