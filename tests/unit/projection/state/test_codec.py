"""States as bytes: what comes back is what was stored, and what JSON cannot say is refused."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field
from typing_extensions import TypedDict

from noesium_stream.errors import ProjectionError, StateNotStoredError
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.state.codec import StateCodec


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    name: str
    price: Decimal = Decimal("0")


class Account(BaseModel):
    """Described."""

    model_config = ConfigDict(extra="forbid")
    balance: int = Field(0, alias="saldo", validation_alias="saldo", serialization_alias="Saldo")
    items: list[Item] = []
    colour: Colour = Colour.RED
    opened: datetime | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rich(self) -> bool:
        return self.balance > 100


@dataclass
class Tally:
    counts: dict[int, int] = field(default_factory=dict)
    share: float = 0.0


class Note(TypedDict):
    text: str
    marks: list[str]


class Tagged(BaseModel):
    tags: set[str] = set()
    numbers: dict[int, frozenset[int]] = {}
    when: dict[str, set[datetime]] = {}
    nested: frozenset[frozenset[str]] = frozenset()
    raw: bytes = b""


def codec_of(kind: Any) -> StateCodec[Any]:
    class Some(BaseProjection[kind]):  # type: ignore[valid-type]
        name = "some"

        def initial_state(self) -> Any:
            return None

        def apply(self, state: Any, event: Any) -> Any:
            return state

    return StateCodec(Some())


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
STATES: list[tuple[Any, Any]] = [
    (int, 2**62),
    (int, -1),
    (str, "Grüße\n"),
    (bool, True),
    (float, 0.1),
    (float, -0.0),
    (dict, {"b": [1, {"a": None}], "a": 2.5}),
    (dict[str, int], {"b": 1, "a": 2}),
    (dict[str, Any], {"b": None}),
    (dict[str, list[dict[str, int]]], {"b": [{"a": 1}]}),
    (list, [1, "a", None]),
    (Any, {"x": [None]}),
    (dict[int, str], {3: "c", 1: "a"}),
    (Account, Account(saldo=7, items=[Item(name="a", price=Decimal("1.10"))], opened=NOON)),
    (Account, Account()),
    (Tally, Tally({3: 1, 2: 5}, 0.25)),
    (Note, {"text": "x", "marks": []}),
    (Account | int, 5),
    (Tagged, Tagged(tags={"b", "a"}, numbers={2: frozenset({3, 1})}, when={"x": {NOON}}, raw=b"abc")),
    (Tagged, Tagged(nested=frozenset({frozenset({"a", "b"}), frozenset({"c"})}))),
    (set[int], {3, 1, 2}),
    (tuple[int, str], (1, "a")),
    (list[Item], [Item(name="a")]),
    (Decimal, Decimal("1.50")),
]


@pytest.mark.parametrize(("kind", "state"), STATES)
def test_a_state_comes_back_as_it_was(kind: Any, state: Any) -> None:
    codec = codec_of(kind)
    data = codec.encode(state)
    found = codec.decode(data)
    assert found == state
    assert type(found) is type(state)
    assert codec.encode(found) == data


def test_what_is_decoded_is_a_new_object_each_time() -> None:
    codec = codec_of(list[Item])
    data = codec.encode([Item(name="a")])
    one, other = codec.decode(data), codec.decode(data)
    one[0].name = "b"
    assert other[0].name == "a"


class Measured(BaseModel):
    values: list[float] = []
    best: float | None = None


class Loose(BaseModel):
    anything: Any = None
    more: dict[str, Any] = {}


@dataclass
class Plain:
    values: tuple[float, ...]


@pytest.mark.parametrize(
    ("kind", "state", "path"),
    [
        (float, math.nan, "state"),
        (int, math.nan, "state"),
        (float, math.inf, "state"),
        (Any, {"a": [1.0, {"b": -math.inf}]}, "state.a.1.b"),
        (dict[str, float], {"a": math.nan}, "state.a"),
        (Measured, Measured(values=[1.0, math.nan]), "state.values.1"),
        (Measured, Measured(best=math.inf), "state.best"),
        (Loose, Loose(anything=[math.nan]), "state.anything.0"),
        (Loose, Loose(more={"x": math.nan}), "state.more.x"),
        (Plain, Plain((0.0, math.nan)), "state.values.1"),
        (set[float], {math.nan}, "state.0"),
    ],
)
def test_no_number_becomes_null_in_silence(kind: Any, state: Any, path: str) -> None:
    with pytest.raises(StateNotStoredError, match=f"the projection some .*{path} is no finite number"):
        codec_of(kind).encode(state)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (int, 2**64),
        (Any, {1: 2}),
        (Any, {"a": {1, 2}}),
        (Any, NOON),
        (Any, Tally()),
        (Any, object()),
        (dict, {"a": b"x"}),
        (str, "\ud800"),
        (Account, {"balance": 1}),
        (Account, Account.model_construct(balance="x", items=[], colour=Colour.RED, opened=None)),
        (Tagged, Tagged(raw=b"\xff")),
        (Note, {"text": 1}),
        (Tally, 5),
    ],
)
def test_what_the_type_argument_does_not_say_is_refused(kind: Any, state: Any) -> None:
    with pytest.raises(StateNotStoredError, match="cannot be stored"):
        codec_of(kind).encode(state)


def test_bytes_of_another_type_are_an_error() -> None:
    with pytest.raises(ProjectionError, match=r"stored state of the projection some cannot be read"):
        codec_of(Account).decode(b'{"balance":"x"}')
    with pytest.raises(ProjectionError, match="cannot be read"):
        codec_of(int).decode(b"{")


class Unknown:
    pass


def test_a_type_that_nothing_can_store_is_an_error_at_once() -> None:
    with pytest.raises(ProjectionError, match="The projection some has a state that cannot be stored"):
        codec_of(Unknown)


def test_shapes_tell_types_apart_and_not_their_descriptions() -> None:
    class Described(BaseModel):
        """Others."""

        a: int = Field(0, description="one")

    class Redescribed(BaseModel):
        """Words."""

        a: int = Field(0, description="two", title="A")

    Redescribed.__name__ = "Described"
    kinds = [int, str, dict[str, int], dict[str, str], list, Account, Tally, Note, Measured, Any]
    assert len({codec_of(kind).shape for kind in kinds}) == len(kinds)
    assert codec_of(Described).shape == codec_of(Redescribed).shape


SEEDED = """
from tests.unit.projection.state.test_codec import Tagged, codec_of
words = [f"word{n}" for n in range(50)]
state = Tagged(tags=set(words), nested=frozenset(frozenset(words[n:n + 3]) for n in range(9)))
print(codec_of(Tagged).shape, codec_of(Tagged).encode(state).hex(), list(state.tags)[:5])
"""


def test_a_set_has_the_same_bytes_under_every_hash_seed() -> None:
    found = []
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", SEEDED],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(run.stdout.split(" ", 2))
    (shape, data, order), (other_shape, other_data, other_order) = found
    assert order != other_order  # the seeds matter
    assert (shape, data) == (other_shape, other_data)
