"""The type of an encoded event, read off its first bytes."""

from __future__ import annotations

import pytest

from noesium_stream.event.codec.codec import EnvelopeCodec, peek_type
from noesium_stream.event.domain_event import DomainEvent
from tests.support.events import PRODUCER, TRACE, catalogue, counted, noted


class Long(DomainEvent, event_type=f"demo.{'a' * 40}.{'b' * 30}"):
    n: int


def _codec() -> EnvelopeCodec:
    known = catalogue()
    known.register(Long)
    return EnvelopeCodec(known)


def test_the_type_is_the_one_that_decoding_finds() -> None:
    codec = _codec()
    for event in (counted(1), noted(2)):
        data = codec.encode(event)
        assert peek_type(data) == codec.decode(data).event_type.encode() == event.event_type.encode()


def test_a_type_of_64_bytes_and_more_is_left_to_decoding() -> None:
    assert peek_type(_codec().encode(Long(n=1).to_envelope(PRODUCER, TRACE))) is None


@pytest.mark.parametrize("cut", range(64))
def test_a_cut_event_has_its_own_type_or_none(cut: int) -> None:
    assert peek_type(_codec().encode(counted(1))[:cut]) in (None, b"demo.counted")


@pytest.mark.parametrize("other", [b"", b"\x00\x00\x00\x00\x01abc", b"\xc3\x01" + bytes(40)])
def test_other_formats_are_left_to_decoding(other: bytes) -> None:
    assert peek_type(other) is None
