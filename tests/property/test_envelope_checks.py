"""The look that lets usual envelopes pass lets none pass that the check of every field refuses."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.errors import EventValidationError
from noesium_stream.event import envelope as module
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext, check_envelope, trusted

ID, TRACE, SPAN = "01890000-0000-7000-8000-000000000000", "ab" * 16, "cd" * 8
SOUND: Final[dict[str, Any]] = {
    "spec_version": "1.0.0",
    "event_id": ID,
    "event_type": "demo.counted",
    "event_version": "1.0.0",
    "timestamp_ms": 1,
    "producer": AgentRef("a", "t"),
    "trace": TraceContext(TRACE, SPAN, SPAN, 1),
    "causation_id": ID,
    "correlation_id": "c",
    "idempotency_key": None,
    "partition_key": "k",
    "ttl_ms": None,
    "payload": {},
    "metadata": {},
    "signature": None,
    "stream_sequence": None,
    "stream_final": None,
    "extensions": {},
}
PARTS: Final[dict[str, tuple[str, ...]]] = {
    "producer": ("agent_id", "agent_type", "runtime_id", "instance_id"),
    "trace": ("trace_id", "span_id", "parent_span_id", "depth"),
}
FIELDS: Final = [name for name in SOUND if name not in ("payload", "metadata")] + [
    f"{part}.{name}" for part, names in PARTS.items() for name in names
]


class Text(str):
    """A text that is none of the usual kind."""


ODD: Final[list[Any]] = [
    *("", " ", "\n", "a b", "é", "\ud800", "k", Text("k"), Text(""), Text(SPAN), Text(ID)),
    *(ID, f"{ID} ", f" {ID}", f"{ID}\n", ID.upper(), ID.replace("-7", "-4"), f"{ID} {TRACE}"),
    *(TRACE, f"{TRACE}\n", TRACE.upper(), f"{TRACE} {SPAN}", TRACE[:-1], "g" * 32),
    *(SPAN, f"{SPAN}\n", f"{SPAN} ", f" {SPAN}", SPAN.upper(), SPAN[:-1], f"{SPAN} {SPAN}", "g" * 16),
    *(0, 1, 2, -1, 2**53 - 1, 2**53, 2**60, 253_402_300_799_999, 253_402_300_800_000, True, False, 1.0),
    *(None, b"x", [], {}, (), {"x": 1}, {"payload": 1}, "1.0", "1.0.0", "Demo.counted", "demo.noted", "demo"),
    *(AgentRef("a", ""), AgentRef("b", "t"), TraceContext(TRACE, SPAN), SOUND["trace"], SOUND["producer"]),
]


def event(changes: dict[str, Any]) -> EventEnvelope:
    """The sound one with these fields instead; `producer.x` and `trace.x` are fields of those parts."""
    fields = {**SOUND, **{name: value for name, value in changes.items() if "." not in name}}
    if not isinstance(fields["extensions"], dict):
        fields["extensions"] = {}  # they are always a dict of the envelope's own
    for name, value in changes.items():
        part, _, inner = name.partition(".")
        if inner and isinstance(fields[part], type(SOUND[part])):
            values = {field: getattr(fields[part], field) for field in PARTS[part]}
            if inner in values:
                fields[part] = type(fields[part])(**{**values, inner: value})
    return trusted(*fields.values())


def refusal(check: Any, event: EventEnvelope) -> tuple[str, str] | None:
    """Field and words with which it is refused."""
    try:
        check(event)
    except EventValidationError as error:
        return error.field, str(error)
    return None


def test_one_odd_field_is_refused_as_by_the_check_of_every_field() -> None:
    check_envelope(event({}))
    assert module._is_usual(event({}))
    refused = 0
    for name in FIELDS:
        for value in ODD:
            odd = event({name: value})
            expected = refusal(module._check_fields, odd)
            assert refusal(check_envelope, odd) == expected, (name, value)
            refused += expected is not None
    assert refused > len(FIELDS) * len(ODD) / 2


@given(st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(ODD), max_size=4))
def test_several_odd_fields_are_refused_as_by_the_check_of_every_field(changes: dict[str, Any]) -> None:
    check_envelope(event({}))
    odd = event(changes)
    assert refusal(check_envelope, odd) == refusal(module._check_fields, odd)


@given(st.lists(st.sampled_from([*ODD, ID, TRACE, SPAN]), min_size=4, max_size=4))
def test_ids_that_only_look_right_together_are_refused(ids: list[Any]) -> None:
    names = ("event_id", "trace.trace_id", "trace.span_id", "trace.parent_span_id")
    odd = event(dict(zip(names, ids, strict=True)))
    assert refusal(check_envelope, odd) == refusal(module._check_fields, odd)


def test_what_was_seen_is_kept_within_bounds() -> None:
    for number in range(5_000):
        producer = AgentRef("a" * 600, "t" * 600 if number % 2 else "t")
        check_envelope(event({"event_type": f"demo.t{number}", "producer": producer}))
    assert len(module._usual_heads) <= module._CACHED
    assert not any(len(producer.agent_type) > 500 for *_, producer in module._usual_heads)
