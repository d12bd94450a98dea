"""What was too large for a broker is named with its size and the topic's limit."""

from __future__ import annotations

import pytest

from noesium_stream.errors import RecordTooLargeError
from noesium_stream.log.kafka.too_large import too_large_for
from noesium_stream.log.prepare import Prepared

SAID = RecordTooLargeError("the broker takes no record of this size.")


def record(name: str, topic: str, size: int, partition: int = 0) -> Prepared:
    text = f"letters.{name}\nid-{name}\n\n\n"
    return Prepared(topic, partition, "k", text, (), b"x" * (size - 1 - len(text)))


def test_the_record_that_exceeds_its_own_topic_s_limit_is_named() -> None:
    records = [
        record("largest", "wide", 5_000),
        record("large", "narrow", 1_200),
        record("small", "narrow", 9),
    ]
    found = too_large_for(records, {"wide": 9_000, "narrow": 1_000}, SAID)
    assert found.message == (
        "letters.large id-large has 1,200 bytes; the topic narrow takes 1,000 at once (max.message.bytes)."
    )
    assert "put its address and hash into the event" in (found.hint or "")


def test_where_none_does_by_itself_it_is_those_of_a_partition_that_do_together() -> None:
    records = [
        record("one", "narrow", 500),
        record("two", "narrow", 600),
        record("other", "narrow", 900, partition=1),
        record("far", "wide", 8_999),
    ]
    found = too_large_for(records, {"wide": 9_000, "narrow": 1_000}, SAID)
    assert found.message == (
        "2 records have 1,100 bytes together; the largest is letters.two id-two; "
        "the topic narrow takes 1,000 at once (max.message.bytes)."
    )


def test_headers_count_too() -> None:
    large = record("one", "narrow", 950)._replace(extra=(("noesium_source", b"x" * 50),))
    assert "letters.one id-one has 1,014 bytes" in too_large_for([large], {"narrow": 1_000}, SAID).message


@pytest.mark.parametrize("limits", [{}, {"narrow": 0}, {"narrow": 5_000}])
def test_where_no_limit_explains_it_the_broker_s_own_words_stay(limits: dict[str, int]) -> None:
    assert too_large_for([record("one", "narrow", 700), record("two", "narrow", 800)], limits, SAID) is SAID
