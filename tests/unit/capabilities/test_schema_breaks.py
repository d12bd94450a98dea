"""A new version of a capability does not break the callers of the one before."""

from __future__ import annotations

from typing import Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from noesium_stream.capabilities.schema_breaks import breaks, schema_breaks
from noesium_stream.event.standard import Capability

TEXT, NUMBER, ANY = {"type": "string"}, {"type": "integer"}, dict[str, Any]()


def fields(required: list[str] | None = None, closed: bool = False, **properties: object) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required or []}
    return {**schema, "additionalProperties": False} if closed else schema


def said(old: dict[str, Any], new: dict[str, Any], side: str) -> list[str]:
    return [str(one) for one in schema_breaks(old, new, side)]


CASES: list[tuple[dict[str, Any], dict[str, Any], list[str], list[str]]] = [
    (fields(q=TEXT), fields(q=TEXT), [], []),
    (fields(q=TEXT), fields(q={**TEXT, "title": "Q", "description": "x"}), [], []),
    (fields(q=TEXT), fields(q=TEXT, k=NUMBER), [], []),
    (fields(q=TEXT), fields(["q"], q=TEXT), ["input.q is required now"], []),
    (fields(["q"], q=TEXT), fields(q=TEXT), [], ["output.q is not always there any more"]),
    (fields(q=TEXT), fields(["k"], q=TEXT, k=NUMBER), ["input.k is required now"], []),
    (fields(q=TEXT, k=TEXT), fields(q=TEXT), [], ["output.k was removed"]),
    (fields(["k"], k=TEXT), fields(), [], ["output.k was removed"]),
    (
        fields(closed=True, q=TEXT, k=TEXT),
        fields(closed=True, q=TEXT),
        ["input.k is no longer accepted"],
        ["output.k was removed"],
    ),
    (
        fields(closed=True, q=TEXT),
        fields(closed=True, q=TEXT, k=TEXT),
        [],
        ["output.k is new, and others are excluded"],
    ),
    (fields(q=TEXT), fields(closed=True, q=TEXT), ["input takes no other fields any more"], []),
    (fields(closed=True, q=TEXT), fields(q=TEXT), [], ["output may have other fields now"]),
    (fields(q=TEXT), fields(q=NUMBER), ["input.q no longer takes string"], ["output.q may be integer now"]),
    (fields(q=NUMBER), fields(q={"type": "number"}), [], ["output.q may be number now"]),
    (fields(q=TEXT), fields(q={"type": ["string", "null"]}), [], ["output.q may be null now"]),
    (fields(q=TEXT), fields(q={"anyOf": [TEXT, {"type": "null"}]}), [], ["output.q may be null now"]),
    (fields(q={"anyOf": [TEXT, NUMBER]}), fields(q=TEXT), ["input.q no longer takes integer"], []),
    (fields(q={"anyOf": [TEXT, NUMBER]}), fields(q={"type": ["integer", "string"]}), [], []),
    (
        fields(q={"enum": ["a", "b"]}),
        fields(q={"enum": ["a", "c"]}),
        ["input.q no longer takes 'b'"],
        ["output.q may be 'c' now"],
    ),
    (fields(q={"const": "a"}), fields(q={"enum": ["a", "b"]}), [], ["output.q may be 'b' now"]),
    (
        fields(q=TEXT),
        fields(q={**TEXT, "enum": ["a"]}),
        ["input.q takes only 'a' now"],
        [],
    ),
    (
        fields(k={**NUMBER, "minimum": 0}),
        fields(k={**NUMBER, "minimum": 1}),
        ["input.k has another minimum: 1, before 0"],
        [],
    ),
    (
        fields(k={**NUMBER, "minimum": 0}),
        fields(k=NUMBER),
        [],
        ["output.k has another minimum: none, before 0"],
    ),
    (fields(k={**NUMBER, "exclusiveMinimum": 0}), fields(k={**NUMBER, "minimum": 0}), [],
     ["output.k has another exclusiveMinimum: none, before 0"]),
    (
        fields(q=TEXT),
        fields(q={**TEXT, "maxLength": 9}),
        ["input.q has another maxLength: 9, before none"],
        [],
    ),
    (
        fields(q={**TEXT, "pattern": "^a"}),
        fields(q={**TEXT, "pattern": "^b"}),
        ["input.q has another pattern: '^b', before '^a'"],
        ["output.q has another pattern: '^b', before '^a'"],
    ),
    (
        {"type": "array", "items": TEXT},
        {"type": "array", "items": NUMBER},
        ["input[] no longer takes string"],
        ["output[] may be integer now"],
    ),
    (
        {"type": "array"},
        {"type": "array", "items": TEXT, "maxItems": 3},
        [
            "input has another maxItems: 3, before none",
            "input[] no longer takes null or boolean or number or array or object",
        ],
        [],
    ),
    (ANY, fields(["q"], q=TEXT), ["input no longer takes null or boolean or number or string or array"], []),
    (fields(q=TEXT), ANY, [], ["output may be null or boolean or number or string or array now"]),
    (
        fields(q={"not": {"const": 1}}),
        fields(q={"not": {"const": 2}}),
        ["input.q cannot be compared (not differs)"],
        ["output.q cannot be compared (not differs)"],
    ),
    (
        {"type": "object", "additionalProperties": NUMBER},
        {"type": "object", "additionalProperties": TEXT},
        ["input.* no longer takes integer"],
        ["output.* may be string now"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "of_input", "of_output"), CASES)
def test_the_field_that_breaks_callers_is_named(
    old: dict[str, Any], new: dict[str, Any], of_input: list[str], of_output: list[str]
) -> None:
    assert said(old, new, "input") == of_input
    assert said(old, new, "output") == of_output


class Passage(BaseModel):
    text: str
    score: float = Field(ge=0)
    parts: list[Passage] = []


class Longer(BaseModel):
    text: str
    score: float = Field(ge=0)
    source: str | None = None
    parts: list[Longer] = []


class Strict(BaseModel):
    text: str = Field(max_length=5)
    score: float = Field(ge=0)
    parts: list[Strict] = []


class Dog(BaseModel):
    kind: Literal["dog"]


class Cat(BaseModel):
    kind: Literal["cat"]


class Cats(BaseModel):
    kind: Literal["cat"]
    lives: int


class Home(BaseModel):
    pet: Dog | Cat = Field(discriminator="kind")


class BusyHome(BaseModel):
    pet: Dog | Cats = Field(discriminator="kind")
    street: str | None = None


def test_models_within_themselves_are_compared() -> None:
    old, longer, strict = (one.model_json_schema() for one in (Passage, Longer, Strict))
    assert said(old, longer, "input") == []
    assert said(old, longer, "output") == []
    assert said(old, strict, "input") == ["input.text has another maxLength: 5, before none"]
    assert said(old, strict, "output") == []
    assert said(strict, old, "output") == ["output.text has another maxLength: none, before 5"]


def test_a_choice_that_a_field_tells_apart_is_compared_one_by_one() -> None:
    old, new = Home.model_json_schema(), BusyHome.model_json_schema()
    assert said(old, new, "input") == ["input.pet.lives is required now"]
    assert said(old, new, "output") == []


def test_both_schemas_of_a_capability_are_compared() -> None:
    old = Capability(id="c", input_schema=fields(q=TEXT), output_schema=fields(["a"], a=TEXT))
    new = Capability(id="c", input_schema=fields(["q"], q=TEXT), output_schema=fields(a=TEXT))
    assert [str(one) for one in breaks(old, new)] == [
        "input.q is required now",
        "output.a is not always there any more",
    ]


def test_a_schema_that_is_made_to_take_long_is_given_up() -> None:
    def doubling(last: dict[str, Any]) -> dict[str, Any]:
        """Small, and 2**30 schemas if every reference is followed."""
        more = {
            f"d{n}": fields(a={"$ref": f"#/$defs/d{n - 1}"}, b={"$ref": f"#/$defs/d{n - 1}"})
            for n in range(1, 30)
        }
        return {"$ref": "#/$defs/d29", "$defs": {"d0": last, **more}}

    found = schema_breaks(doubling(NUMBER), doubling({"type": "number"}), "input")
    assert {str(one).partition("(")[2] for one in found} == {"it is too deep or too large)"}
    assert not any(one.comparable for one in found)


low, high, length = st.integers(-2, 1), st.integers(1, 3), st.integers(0, 2)
listed = st.lists(st.sampled_from(["a", "b", 1, None]), min_size=1, max_size=3)
leaf = st.one_of(
    st.builds(lambda low, high: {"type": "integer", "minimum": low, "maximum": high}, low, high),
    st.builds(lambda length: {"type": "string", "maxLength": length}, length),
    st.builds(lambda values: {"enum": values}, listed),
    st.sampled_from([{}, {"type": "null"}, {"type": "number"}, {"type": ["string", "null"]}, True]),
)  # fmt: skip


def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["x", "y"])
    return st.one_of(
        st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner),
        st.builds(lambda one, low: {"type": "array", "items": one, "minItems": low}, inner, length),
        st.builds(
            lambda properties, required, rest: {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": rest,
            },
            st.dictionaries(names, inner, max_size=2),
            st.lists(names, max_size=2, unique=True),
            st.just(False) | inner.filter(lambda one: one not in ({}, True)),
        ),
    )  # fmt: skip


schemas = st.recursive(leaf, deeper, max_leaves=6).map(lambda one: {} if one is True else one)
values = st.recursive(
    st.sampled_from(["", "a", "b", "abc", -2, 0, 1, 2, 3, 1.5, None, True]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=300)
@given(schemas, schemas, st.lists(values, min_size=5, max_size=20))
def test_what_breaks_nobody_accepts_what_was_accepted(
    old: dict[str, Any], new: dict[str, Any], some: list[Any]
) -> None:
    if schema_breaks(old, new, "input"):
        return
    before, after = jsonschema_rs.validator_for(old), jsonschema_rs.validator_for(new)
    for value in some:
        assert not before.is_valid(value) or after.is_valid(value), value


@settings(max_examples=300)
@given(schemas, schemas, st.lists(values, min_size=5, max_size=20))
def test_what_breaks_nobody_answers_only_what_was_answered(
    old: dict[str, Any], new: dict[str, Any], some: list[Any]
) -> None:
    if schema_breaks(old, new, "output"):
        return
    before, after = jsonschema_rs.validator_for(old), jsonschema_rs.validator_for(new)
    for value in some:
        assert not after.is_valid(value) or before.is_valid(value), value


@given(schemas)
def test_a_schema_breaks_nobody_with_itself(schema: dict[str, Any]) -> None:
    again = {**schema, "description": "the same"}
    assert schema_breaks(schema, again, "input") == schema_breaks(schema, again, "output") == []
