from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field

from noesium_stream.errors import ConfigError, EventValidationError, UnknownSchemaError
from noesium_stream.event import Catalogue, DomainEvent, EnvelopeCodec, SignatureBlock, standard_catalogue
from noesium_stream.event.standard import NodeEntered, RunRequested, TaskRequested
from tests.support.envelopes import envelope


class Line(BaseModel):
    sku: str
    count: int = Field(ge=1)


class Ordered(DomainEvent, event_type="shop.ordered", version="2.1.0"):
    order_id: str
    lines: list[Line]
    note: str | None = None


class OrderedOnce(DomainEvent, event_type="shop.ordered", version="1.0.0"):
    order: int
    sku: str


class OrderedOther(DomainEvent, event_type="shop.ordered", version="2.1.0"):
    order_id: int


def shop() -> Catalogue:
    catalogue = Catalogue()
    catalogue.register(Ordered)
    catalogue.register(OrderedOnce)
    catalogue.register_upcaster(
        "shop.ordered",
        1,
        lambda old: {
            "order_id": str(old.pop("order")),
            "lines": [{"sku": old.pop("sku"), "count": 1}],
            **old,
        },
    )
    return catalogue


def ordered(version: str, **payload: Any) -> Any:
    return envelope(event_type="shop.ordered", event_version=version, payload=payload)


LINES = [{"sku": "a", "count": 2}]


def test_a_payload_is_judged_by_the_schema_of_its_type_and_version() -> None:
    shop().validate(ordered("2.1.0", order_id="7", lines=LINES))
    shop().validate(ordered("1.0.0", order=7, sku="a"))


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"lines": LINES}, "payload.order_id"),
        ({"order_id": 7, "lines": LINES}, "payload.order_id"),
        ({"order_id": "7", "lines": [LINES[0], {"sku": "b", "count": 0}]}, "payload.lines.1.count"),
        ({"order_id": "7", "lines": [{"count": 1}]}, "payload.lines.0.sku"),
        ({"order_id": "7", "lines": LINES, "note": 5}, "payload.note"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_by_the_path_of_the_field(payload: Any, field: str) -> None:
    with pytest.raises(EventValidationError) as caught:
        shop().validate(ordered("2.1.0", **payload))
    assert caught.value.field == field
    assert caught.value.reason


def test_a_long_value_does_not_flood_the_message() -> None:
    with pytest.raises(EventValidationError) as caught:
        shop().validate(ordered("2.1.0", order_id=["x" * 100_000], lines=[]))
    assert len(str(caught.value)) < 500


def test_values_that_are_no_json_are_refused_by_their_path() -> None:
    with pytest.raises(EventValidationError) as caught:
        shop().validate(ordered("2.1.0", order_id="7", lines=[{"sku": "a", "count": {1}}]))
    assert caught.value.field == "payload.lines.0.count"
    with pytest.raises(EventValidationError) as caught:
        shop().validate(ordered("2.1.0", order_id="7", lines=[{1: 2}]))
    assert caught.value.field == "payload.lines.0"


def test_an_unknown_type_is_refused_with_a_hint() -> None:
    with pytest.raises(UnknownSchemaError, match=r"shop\.returned") as caught:
        shop().validate(envelope(event_type="shop.returned"))
    assert caught.value.field == "event_type"
    assert caught.value.hint


def test_an_unknown_major_version_is_refused() -> None:
    with pytest.raises(UnknownSchemaError, match=r"3\.0\.0") as caught:
        shop().validate(ordered("3.0.0", order_id="7", lines=LINES))
    assert caught.value.field == "event_version"


@pytest.mark.parametrize("version", ["2.1.9", "2.2.0", "2.99.3"])
def test_a_higher_minor_is_judged_by_the_highest_known_and_keeps_its_new_fields(version: str) -> None:
    event = ordered(version, order_id="7", lines=[{"sku": "a", "count": 2, "colour": "red"}], gift=True)
    shop().validate(event)
    codec = EnvelopeCodec(shop())
    assert codec.decode(codec.encode(event)) == event
    typed = shop().parse(event)
    assert isinstance(typed, Ordered)
    assert typed.payload()["gift"] is True
    with pytest.raises(EventValidationError):
        shop().validate(ordered(version, order_id=7, lines=LINES))


def test_a_lower_minor_that_has_no_schema_of_its_own_is_judged_by_the_lowest_known() -> None:
    shop().validate(ordered("2.0.3", order_id="7", lines=LINES))


def test_an_event_of_the_newest_major_is_not_upcast() -> None:
    event = ordered("2.2.0", order_id="7", lines=LINES)
    assert shop().upcast(event) is event


def test_an_event_of_the_major_before_is_upcast_and_typed() -> None:
    event = ordered("1.0.0", order=7, sku="a", note="keep")
    new = shop().upcast(event)
    assert new.event_version == "2.1.0"
    assert new.event_id == event.event_id
    assert new.payload == {"order_id": "7", "lines": [{"sku": "a", "count": 1}], "note": "keep"}
    assert event.payload == {"order": 7, "sku": "a", "note": "keep"}
    assert shop().parse(event) == Ordered(order_id="7", lines=[Line(sku="a", count=1)], note="keep")


def test_a_signature_does_not_vouch_for_what_an_upcaster_made() -> None:
    event = ordered("1.0.0", order=7, sku="a").replace(signature=SignatureBlock("Ed25519", "k", "s"))
    assert shop().upcast(event).signature is None


def test_a_minor_version_registered_later_judges_events_from_then_on() -> None:
    catalogue = Catalogue()
    catalogue.register_schema("a.b", "1.0.0", {"type": "object"})
    event = envelope(event_type="a.b", event_version="1.1.0", payload={})
    catalogue.validate(event)
    catalogue.register_schema("a.b", "1.1.0", {"type": "object", "required": ["x"]})
    with pytest.raises(EventValidationError) as caught:
        catalogue.validate(event)
    assert caught.value.field == "payload.x"


def test_upcasters_lead_over_several_majors() -> None:
    catalogue = Catalogue()
    for major in (1, 2, 3):
        catalogue.register_schema("a.b", f"{major}.0.0", {"type": "object", "required": [f"v{major}"]})
    catalogue.register_upcaster("a.b", 1, lambda old: {"v2": old["v1"] + 1})
    catalogue.register_upcaster("a.b", 2, lambda old: {"v3": old["v2"] + 1})
    assert catalogue.upcast(envelope(event_type="a.b", payload={"v1": 1})).payload == {"v3": 3}
    assert catalogue.upcasts("a.b", 1)
    assert not shop().upcasts("shop.ordered", 0)


def test_a_class_of_a_new_major_says_itself_how_it_reads_the_one_before() -> None:
    class First(DomainEvent, event_type="a.b", version="1.1.0"):
        v1: int

    class Second(DomainEvent, event_type="a.b", version="2.0.0"):
        v2: int

        @classmethod
        def upcast(cls, payload: dict[str, Any]) -> dict[str, Any]:
            return {"v2": payload["v1"] + 1}

    class Third(Second, version="3.0.0"):
        pass

    old = envelope(event_type="a.b", event_version="1.1.0", payload={"v1": 1})
    catalogue = Catalogue()
    for _ in range(2):
        catalogue.register(First)
        catalogue.register(Second)
    assert catalogue.upcast(old).payload == {"v2": 2}
    catalogue.register(Third)
    with pytest.raises(UnknownSchemaError, match="no upcaster leads on from major 2"):
        catalogue.upcast(old)
    other = Catalogue()
    other.register_upcaster("a.b", 1, lambda old: {"v2": 7})
    other.register(First)
    other.register(Second)
    assert other.upcast(old).payload == {"v2": 7}
    with pytest.raises(NotImplementedError):
        First.upcast({})


def test_a_missing_upcaster_is_named() -> None:
    catalogue = Catalogue()
    catalogue.register(Ordered)
    catalogue.register(OrderedOnce)
    with pytest.raises(UnknownSchemaError, match="no upcaster leads on from major 1"):
        catalogue.parse(ordered("1.0.0", order=7, sku="a"))


def test_what_an_upcaster_makes_is_validated() -> None:
    catalogue = Catalogue()
    catalogue.register(Ordered)
    catalogue.register(OrderedOnce)
    catalogue.register_upcaster("shop.ordered", 1, lambda old: {"order_id": old["order"], "lines": []})
    with pytest.raises(EventValidationError) as caught:
        catalogue.upcast(ordered("1.0.0", order=7, sku="a"))
    assert caught.value.field == "payload.order_id"


def test_an_upcaster_that_fails_is_an_error_that_names_it() -> None:
    catalogue = Catalogue()
    catalogue.register(Ordered)
    catalogue.register(OrderedOnce)
    catalogue.register_upcaster("shop.ordered", 1, lambda old: {"order_id": old["absent"]})
    with pytest.raises(
        EventValidationError, match=r"upcaster of shop\.ordered from major 1 failed: KeyError"
    ):
        catalogue.upcast(ordered("1.0.0", order=7, sku="a"))


def test_a_second_upcaster_from_one_major_is_refused() -> None:
    with pytest.raises(ConfigError, match="already"):
        shop().register_upcaster("shop.ordered", 1, lambda old: old)


def test_registering_a_class_again_changes_nothing() -> None:
    catalogue = shop()
    assert catalogue.register(Ordered) is Ordered
    assert catalogue.versions("shop.ordered") == ("1.0.0", "2.1.0")
    assert catalogue.types() == ("shop.ordered",)


def test_another_schema_under_a_known_version_is_refused() -> None:
    catalogue = shop()
    with pytest.raises(ConfigError, match=r"shop\.ordered 2\.1\.0 is registered already"):
        catalogue.register(OrderedOther)
    with pytest.raises(ConfigError, match="already"):
        catalogue.register_schema("shop.ordered", "2.1.0", {"type": "object"})
    catalogue.validate(ordered("2.1.0", order_id="7", lines=LINES))


def test_a_lazily_registered_class_is_compared_as_well() -> None:
    class Changed(DomainEvent, event_type="run.requested"):
        run_id: int

    with pytest.raises(ConfigError, match=r"run\.requested 1\.0\.0"):
        standard_catalogue().register(Changed)


def test_another_description_is_no_other_schema() -> None:
    class Ordered(DomainEvent, event_type="shop.ordered", version="2.1.0"):
        """Said in other words."""

        order_id: str = Field(description="The number on the bill.")
        lines: list[Line]
        note: str | None = None

    shop().register(Ordered)


def test_a_class_without_a_type_is_refused() -> None:
    class Nameless(DomainEvent):
        x: int

    with pytest.raises(ConfigError, match="Nameless"):
        Catalogue().register(Nameless)


def test_a_class_with_a_field_that_json_cannot_hold_is_refused() -> None:
    class Callback(DomainEvent, event_type="a.b"):
        call: Callable[[int], int]

    with pytest.raises(ConfigError, match="Callback"):
        Catalogue().register(Callback)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nothing"},
        {"$ref": "https://example.org/schema.json"},
        {"properties": {"a": {"items": {"$ref": "other.json#/x"}}}},
        {"$ref": "#/$defs/absent"},
    ],
)
def test_a_schema_that_is_none_or_not_self_contained_is_refused(schema: Any) -> None:
    with pytest.raises(ConfigError):
        Catalogue().register_schema("a.b", "1.0.0", schema)
    catalogue = Catalogue()
    with pytest.raises(ConfigError):
        catalogue.register_schema("a.b", "1.0.0", schema)
    assert catalogue.types() == ()


def test_a_type_that_is_known_by_its_schema_alone_validates_but_has_no_class() -> None:
    catalogue = Catalogue()
    catalogue.register_schema("a.b", "1.0.0", {"type": "object"})
    catalogue.validate(envelope(event_type="a.b"))
    with pytest.raises(UnknownSchemaError, match="schema alone"):
        catalogue.parse(envelope(event_type="a.b"))


def test_a_class_may_follow_its_schema() -> None:
    catalogue = Catalogue()
    catalogue.register(Ordered)
    (_, _, schema) = next(catalogue.schemas())
    other = Catalogue()
    other.register_schema("shop.ordered", "2.1.0", schema)
    other.register(Ordered)
    assert isinstance(other.parse(ordered("2.1.0", order_id="7", lines=LINES)), Ordered)


def test_a_type_registered_later_is_seen_by_a_codec_that_is_in_use() -> None:
    catalogue = Catalogue()
    codec = EnvelopeCodec(catalogue)
    event = ordered("2.2.0", order_id="7", lines=LINES)
    with pytest.raises(UnknownSchemaError):
        codec.encode(event)
    catalogue.register(Ordered)
    assert codec.decode(codec.encode(event)) == event


def test_every_standard_event_has_a_schema_that_is_json_schema_2020_12() -> None:
    for event_type, version, schema in standard_catalogue().schemas():
        jsonschema_rs.meta.validate(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["$id"] == f"urn:noesium:event:{event_type}:{version}"
        assert schema["additionalProperties"] is True


def test_catalogues_do_not_share_what_is_registered() -> None:
    one = standard_catalogue()
    one.register(Ordered)
    assert "shop.ordered" not in standard_catalogue().types()


def test_standard_events_go_round_typed() -> None:
    codec = EnvelopeCodec()
    events: list[DomainEvent] = [
        RunRequested(run_id="r", agent_type="researcher", input={"question": "?"}),
        TaskRequested(task_id="t", capability_id="c", payload={"x": 1}),
        NodeEntered(run_id="r", node="n", step=0, task_path="p", attempt=1, deterministic=True),
    ]
    base = envelope()
    for event in events:
        sent = event.to_envelope(base.producer, base.trace)
        assert codec.catalogue.parse(codec.decode(codec.encode(sent))) == event
