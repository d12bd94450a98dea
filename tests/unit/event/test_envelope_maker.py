"""What a handler makes of events is said in the same words as by `to_envelope`, and as soundly."""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, PlainSerializer, computed_field, field_serializer

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import EventValidationError
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.domain_event import DomainEvent, plain_payload
from noesium_stream.event.envelope_maker import EnvelopeMaker

ME = AgentRef("adder", "adder", "local", "1")


class Sold(DomainEvent, event_type="sales.sold"):
    amount: int


class Colour(enum.StrEnum):
    RED = "red"


class Nested(DomainEvent, event_type="sales.nested"):
    lines: list[datetime]


class Odd(DomainEvent, event_type="Not a type"):
    amount: int


def cause(correlation_id: str | None = None) -> EventEnvelope:
    clock = VirtualClock()
    trace = TraceContext(clock.token(16), clock.token(8), depth=3)
    return Sold(amount=1).to_envelope(ME, trace, None, correlation_id, partition_key="k", clock=clock)


@pytest.mark.parametrize("correlation_id", [None, "order-7"])
@pytest.mark.parametrize("key", ["k", "another", None])
def test_an_event_that_is_made_is_the_one_that_it_would_be_by_itself(
    correlation_id: str | None, key: str | None
) -> None:
    event, making = cause(correlation_id), EnvelopeMaker(ME, VirtualClock(seed=5))
    for number in range(100):
        made = making.of(Sold(amount=number), event, key, f"adder/{number}")
        alone = Sold(amount=number).to_envelope(
            ME,
            TraceContext(event.trace.trace_id, made.trace.span_id, event.trace.span_id, 3),
            event.event_id,
            correlation_id or event.event_id,
            partition_key=key,
            idempotency_key=f"adder/{number}",
            clock=VirtualClock(),
        )
        assert made.replace(event_id=alone.event_id) == alone
    assert isinstance(made, EventEnvelope)


def test_no_two_events_have_the_same_id_or_span() -> None:
    event, making = cause(), EnvelopeMaker(ME, VirtualClock())
    made = [making.of(Sold(amount=1), event, "k", "i") for _ in range(300)]
    assert len({one.event_id for one in made}) == len({one.trace.span_id for one in made}) == 300


@pytest.mark.parametrize("wrong", ["", "\ud800", 7])
def test_a_partition_key_that_is_none_is_refused(wrong: Any) -> None:
    making = EnvelopeMaker(ME, VirtualClock())
    making.of(Sold(amount=1), cause(), "k", "i")
    with pytest.raises(EventValidationError, match="partition_key"):
        making.of(Sold(amount=1), cause(), wrong, "i")


def test_a_type_that_is_none_is_refused_again_and_again() -> None:
    making = EnvelopeMaker(ME, VirtualClock())
    for _ in range(2):
        with pytest.raises(EventValidationError, match="event_type"):
            making.of(Odd(amount=1), cause(), "k", "i")


# -- payloads ---------------------------------------------------------------------------------------------


class Plain(DomainEvent, event_type="sales.plain"):
    text: str = "a"
    number: Annotated[int, Field(ge=0)] = 0
    share: float = 0.5
    other: str | int | None = None
    kind: Literal["a", "b"] = "a"


class Aliased(DomainEvent, event_type="sales.aliased"):
    from_: str = Field(default="a", alias="from")


class Computed(DomainEvent, event_type="sales.computed"):
    number: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return self.number * 2


class Serialized(DomainEvent, event_type="sales.serialized"):
    number: int = 1

    @field_serializer("number")
    def as_text(self, number: int) -> str:
        return str(number)


class Annotating(DomainEvent, event_type="sales.annotating"):
    number: Annotated[int, PlainSerializer(str)] = 1


class Looking(DomainEvent, event_type="sales.looking"):
    number: int

    @cached_property
    def twice(self) -> int:
        return 2 * self.number


class Excluding(DomainEvent, event_type="sales.excluding"):
    number: int = Field(default=1, exclude=True)


EVENTS = [
    Plain(),
    Plain(text="\u00e9", number=7, share=1e300, other=3, kind="b"),
    Plain.model_construct(share=4, other=True),
    Plain.model_construct(other=[datetime(2026, 1, 1, tzinfo=UTC)]),
    Plain.model_construct(text=Colour.RED),
    Plain(unknown={"a": 1}),  # type: ignore[call-arg]
    Nested(lines=[datetime(2026, 1, 1, tzinfo=UTC)]),
    Aliased(),
    Computed(),
    Serialized(),
    Annotating(),
    Excluding(),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_a_payload_is_what_pydantic_would_write(event: DomainEvent) -> None:
    written = event.model_dump(mode="json", by_alias=True)
    assert event.payload() == written
    assert list(event.payload()) == list(written)
    assert [type(value) for value in event.payload().values()] == [type(v) for v in written.values()]


def test_only_what_is_plain_is_written_without_pydantic() -> None:
    assert [type(event).__name__ for event in EVENTS if plain_payload(event) is not None] == ["Plain"] * 2


def test_a_payload_is_not_the_event_itself() -> None:
    event = Plain()
    event.payload()["number"] = 8
    assert event.number == 0


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_has_not_is_left_to_pydantic(number: float) -> None:
    assert plain_payload(Plain.model_construct(share=number)) is None


def test_what_an_event_has_looked_up_of_itself_is_no_part_of_its_payload() -> None:
    event = Looking(number=1)
    assert event.twice == 2
    assert event.payload() == {"number": 1}
