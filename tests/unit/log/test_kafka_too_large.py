"""What was too large for a broker is named with its size and the topic's limit."""

from __future__ import annotations

from noesium_stream.errors import RecordTooLargeError
from noesium_stream.log.kafka_too_large import too_large_for
from noesium_stream.log.prepare import Prepared

SAID = RecordTooLargeError("the broker takes no record of this size.")


def record(name: str, topic: str, size: int) -> Prepared:
    return Prepared(topic, 0, "k", f"letters.{name}\nid-{name}\n\n\n", (), b"x" * (size - 1))


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


def test_where_none_does_by_itself_it_is_all_of_them_together() -> None:
    records = [record("one", "narrow", 700), record("two", "narrow", 900), record("far", "wide", 1_000)]
    found = too_large_for(records, {"wide": 9_000, "narrow": 1_000}, SAID)
    assert found.message == (
        "2 records have 1,600 bytes together; the largest, letters.two id-two has 900 bytes; "
        "the topic narrow takes 1,000 at once (max.message.bytes)."
    )


def test_where_no_limit_is_known_the_broker_s_own_words_stay() -> None:
    assert too_large_for([record("one", "narrow", 700)], {}, SAID) is SAID
