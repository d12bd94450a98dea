"""Secrets, as a schema calls them, are shown nowhere."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.redaction import HIDDEN
from noesium_stream.tool.redact import redacted

SECRET: dict[str, Any] = {"type": "string", "writeOnly": True}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize("mark", [{"writeOnly": True}, {"format": "password"}, {"x-noesium-secret": True}])
def test_each_annotation_hides_a_value_of_any_type(mark: dict[str, Any]) -> None:
    value = {"pin": {"deep": [1]}, "name": "Ada"}
    assert redacted(value, of(pin=mark, name={"type": "string"})) == {"pin": "***", "name": "Ada"}
    assert value["pin"] == {"deep": [1]}


@pytest.mark.parametrize("mark", [{"writeOnly": False}, {"format": "date"}, {"x-noesium-secret": "yes"}])
def test_other_annotations_hide_nothing(mark: dict[str, Any]) -> None:
    assert redacted({"pin": 1}, of(pin=mark)) == {"pin": 1}


def test_without_a_schema_everything_is_shown() -> None:
    assert redacted({"pin": 1}, None) == {"pin": 1}


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        (of(a=of(b=SECRET)), {"a": {"b": "x", "c": 1}}, {"a": {"b": "***", "c": 1}}),
        ({"type": "array", "items": of(b=SECRET)}, [{"b": "x"}, {"b": "y"}], [{"b": "***"}, {"b": "***"}]),
        ({"prefixItems": [{}, SECRET], "items": {}}, ["a", "b", "c"], ["a", "***", "c"]),
        ({"additionalProperties": SECRET}, {"any": "x"}, {"any": "***"}),
        (of(a={"anyOf": [SECRET, {"type": "null"}]}), {"a": "x"}, {"a": "***"}),
        (of(a={"anyOf": [SECRET, {"type": "null"}]}), {"a": None}, {"a": None}),
        (of(a={"oneOf": [{"type": "integer"}, of(b=SECRET)]}), {"a": {"b": 1}}, {"a": {"b": "***"}}),
        (of(a={"allOf": [{"type": "string"}, SECRET]}), {"a": "x"}, {"a": "***"}),
        ({"$defs": {"pin": SECRET}, **of(a={"$ref": "#/$defs/pin"})}, {"a": "x"}, {"a": "***"}),
        ({"$defs": {"a/b": SECRET}, **of(a={"$ref": "#/$defs/a~1b"})}, {"a": "x"}, {"a": "***"}),
        ({"$defs": {"n": of(p=SECRET)}, "$ref": "#/$defs/n"}, {"p": "x"}, {"p": "***"}),
        (SECRET, "x", "***"),
    ],
)
def test_secrets_are_found_wherever_a_schema_puts_them(
    schema: dict[str, Any], value: Any, shown: Any
) -> None:
    assert redacted(value, schema) == shown


def test_a_recursive_schema_is_followed_as_deep_as_the_value() -> None:
    tree = {"$defs": {"t": of(pin=SECRET, next={"$ref": "#/$defs/t"})}, "$ref": "#/$defs/t"}
    value: Any = None
    shown: Any = None
    for _ in range(20):
        value, shown = {"pin": "x", "next": value}, {"pin": "***", "next": shown}
    assert redacted(value, tree) == shown


def test_a_schema_that_refers_to_itself_ends() -> None:
    loop = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, SECRET]}}}
    assert redacted("x", {**loop, "$ref": "#/$defs/a"}) == "***"


def test_what_lies_deeper_than_is_looked_at_is_hidden() -> None:
    value: Any = "x"
    for _ in range(100):
        value = [value]
    shown = redacted(value, {"$defs": {"s": SECRET}, "type": "array"})
    for _ in range(64):
        shown = shown[0]
    assert shown == "***"


def test_what_a_reference_to_elsewhere_describes_is_hidden() -> None:
    assert redacted("x", {"$ref": "https://example.com/secret.json", "$defs": {"s": SECRET}}) == HIDDEN
