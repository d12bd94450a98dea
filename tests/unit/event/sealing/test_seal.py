"""Sealed payloads: readable with the key alone, bound to their event, and the same bytes again."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import EventValidationError, SubjectKeyError
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.sealing.keys import KeyRing
from noesium_stream.event.sealing.seal import SEALED, is_erased
from noesium_stream.event.standard import CapabilityCompleted, MemoryWritten, NodeCompleted
from noesium_stream.event.standard.catalogue import standard_catalogue, standard_events

PRODUCER = AgentRef("p", "client", "local", "i")


class Paid(DomainEvent, event_type="payment.made"):
    """An event of one's own."""

    account: str
    cents: int


def codec(keys: KeyRing | None) -> EnvelopeCodec:
    catalogue = standard_catalogue()
    catalogue.register(Paid)
    return EnvelopeCodec(catalogue, subject_keys=keys)


def of(event: DomainEvent, **metadata: Any) -> EventEnvelope:
    return root_event(event, PRODUCER, VirtualClock(), metadata=metadata)


def written(**more: Any) -> MemoryWritten:
    return MemoryWritten(key="home.city", value="Lisbon", value_type="str", scope="user:ada", **more)


def test_memory_of_a_user_is_sealed_and_read_as_it_was() -> None:
    keys = KeyRing()
    event = of(written(said_by="ada"))
    data = codec(keys).encode(event)
    for text in (b"home.city", b"Lisbon", b'said_by":', b"data_subject"):
        assert text not in data
    assert codec(keys).decode(data) == event
    assert codec(keys).encode(codec(keys).decode(data)) == data
    shared = of(MemoryWritten(key="k", value="Lisbon", value_type="str", scope="shared"))
    assert b"Lisbon" in codec(keys).encode(shared)


def test_an_event_of_ones_own_is_sealed_as_a_whole_and_keeps_its_subject() -> None:
    keys = KeyRing()
    event = of(Paid(account="DE-4711", cents=99), data_subject="user:ada", team="red")
    data = codec(keys).encode(event)
    assert b"DE-4711" not in data
    assert b'cents":99' not in data
    assert codec(keys).decode(data) == event
    assert codec(keys).decode_unchecked(data) == event


def test_without_the_key_stand_ins_are_read_and_the_event_is_the_same_bytes_again() -> None:
    keys = KeyRing()
    done = NodeCompleted(
        run_id="r", node="read", step=1, task_path="t", attempt=1, delta={"a": "secret"}, duration_ms=3
    )
    data = codec(keys).encode(of(done, data_subject="user:ada"))
    keys.destroy("user:ada", 7)
    read = codec(keys).decode(data)
    assert is_erased(read)
    assert (read.payload["node"], read.payload["duration_ms"], read.payload["delta"]) == ("read", 3, "erased")
    assert codec(keys).encode(read) == data
    assert codec(keys).catalogue.parse(read).node == "read"  # type: ignore[attr-defined]
    assert not is_erased(codec(keys).decode(codec(keys).encode(of(written()))))  # with a new key


def test_that_nothing_was_there_stays_readable() -> None:
    keys = KeyRing()
    answer = CapabilityCompleted(
        run_id="r", call_id="c", caller_run_id="o", capability_id="x", provider_agent_id="p", output="secret"
    )
    data = codec(keys).encode(of(answer, data_subject="user:ada"))
    keys.destroy("user:ada", 7)
    assert codec(keys).decode(data).payload["error"] is None


def test_of_two_subjects_either_key_is_needed() -> None:
    for gone in ("user:ada", "user:bo"):
        keys = KeyRing()
        event = of(Paid(account="joint", cents=1), data_subject=["user:ada", "user:bo"])
        data = codec(keys).encode(event)
        assert codec(keys).decode(data) == event
        keys.destroy(gone, 7)
        assert is_erased(codec(keys).decode(data))
    about = of(MemoryWritten(key="k", value="Lisbon", value_type="str", scope="shared", about=["user:ada"]))
    keys = KeyRing()
    data = codec(keys).encode(about)
    assert b"Lisbon" not in data
    assert codec(keys).decode(data) == about


def test_the_same_text_in_two_events_looks_different() -> None:
    keys, clock = KeyRing(), VirtualClock()
    one, other = (codec(keys).encode(root_event(written(), PRODUCER, clock)) for _ in range(2))
    blocks = [codec(keys).decode_closed(data).metadata[SEALED] for data in (one, other)]
    assert blocks[0]["nonce"] != blocks[1]["nonce"]
    assert blocks[0]["text"][:20] != blocks[1]["text"][:20]


def test_fields_that_were_moved_to_another_event_or_changed_are_refused() -> None:
    keys, clock = KeyRing(), VirtualClock()
    one, other = (root_event(written(), PRODUCER, clock) for _ in range(2))
    closed = codec(keys).decode_closed(codec(keys).encode(one))
    moved = other.replace(payload=closed.payload, metadata=closed.metadata)
    with pytest.raises(EventValidationError, match="not what was sealed"):
        codec(keys).decode(codec(keys).encode(moved))
    block = dict(closed.metadata[SEALED])
    for name, value in (
        ("text", "AAAA"),
        ("nonce", "AAAA"),
        ("nonce", "%"),
        ("keys", []),
        ("keys", ["../key"]),
        ("keys", 7),
        ("fields", [1]),
        ("more", 1),
    ):
        with pytest.raises(EventValidationError, match="sealed"):
            codec(keys).sealer.open(one.replace(metadata={SEALED: {**block, name: value}}))
    with pytest.raises(EventValidationError, match="sealed"):
        codec(keys).encode(one.replace(metadata={SEALED: "x"}))


def test_a_store_that_lacks_the_key_does_not_take_it_for_erased() -> None:
    data = codec(KeyRing()).encode(of(written()))
    for keys in (KeyRing(), None):
        with pytest.raises(SubjectKeyError) as caught:
            codec(keys).decode(data)
        assert "NOESIUM_SUBJECT_KEYS" in (caught.value.hint or "")


def test_without_a_store_a_declared_subject_is_refused_and_memory_is_written_as_it_is() -> None:
    with pytest.raises(SubjectKeyError, match="no store of keys"):
        codec(None).encode(of(Paid(account="a", cents=1), data_subject="user:ada"))
    assert b"Lisbon" in codec(None).encode(of(written()))


@pytest.mark.parametrize("subject", [7, "ada", "user:", "User:a", "user:a\n", {"a": 1}, ["user:a"] * 1 + [2]])
def test_what_is_no_data_subject_is_refused(subject: object) -> None:
    with pytest.raises(EventValidationError, match="data_subject"):
        codec(KeyRing()).encode(of(Paid(account="a", cents=1), data_subject=subject))


def test_of_standard_events_no_free_text_or_value_stays_readable() -> None:
    """The fields that stay: ids, names of code, numbers, choices. A new one has to be judged here."""
    sealer = codec(None).sealer
    shown: dict[str, list[str]] = {}
    for event in standard_events():
        if event.event_type().partition(".")[0] in ("run", "kernel", "effect", "memory", "approval", "tool"):
            fields = sealer._of(of_type(event))
            shown[event.event_type()] = sorted(fields.shown)
    assert shown["memory.written"] == [
        "about",
        "expires_ms",
        "memory_id",
        "scope",
        "valid_from_ms",
        "valid_until_ms",
    ]
    assert shown["run.completed"] == ["duration_ms", "run_id"]
    assert shown["effect.completed"] == ["duration_ms", "effect_id", "run_id"]
    assert "argument" not in shown["kernel.node.entered"]
    everything = {name for names in shown.values() for name in names}
    personal = {
        "input",
        "output",
        "result",
        "value",
        "question",
        "delta",
        "arguments",
        "message",
        "error",
        "state",
    }
    assert not everything & personal
    assert not {name for name in everything if name.endswith(("_hash", "fingerprint"))}


def of_type(event: type[DomainEvent]) -> Any:
    class Kind:
        event_type, event_version = event.event_type(), event.event_version()

    return Kind()
