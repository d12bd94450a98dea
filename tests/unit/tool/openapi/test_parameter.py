"""`tool/openapi/parameter.py`: the examples of OpenAPI 3.1, "Style Examples"."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.errors import ToolInputError
from noesium_stream.tool.openapi.parameter import Parameter

ARRAY = ["blue", "black", "brown"]
OBJECT = {"R": 100, "G": 200, "B": 150}


def parameter(place: str, style: str, explode: bool, as_json: bool = False) -> Parameter:
    return Parameter("color", "color", place, style, explode, as_json)


@pytest.mark.parametrize(
    ("style", "explode", "text", "array", "fields"),
    [
        ("matrix", False, ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"),
        ("matrix", True, ";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200;B=150"),
        ("label", False, ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
        ("label", True, ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
        ("simple", False, "blue", "blue,black,brown", "R,100,G,200,B,150"),
        ("simple", True, "blue", "blue,black,brown", "R=100,G=200,B=150"),
    ],
)
def test_values_in_a_path(style: str, explode: bool, text: str, array: str, fields: str) -> None:
    one = parameter("path", style, explode)
    assert [one.in_path("blue"), one.in_path(ARRAY), one.in_path(OBJECT)] == [text, array, fields]


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("form", True, "a b&c", "color=a%20b%26c"),
        ("form", True, ARRAY, "color=blue&color=black&color=brown"),
        ("form", False, ARRAY, "color=blue,black,brown"),
        ("form", True, OBJECT, "R=100&G=200&B=150"),
        ("form", False, OBJECT, "color=R,100,G,200,B,150"),
        ("spaceDelimited", False, ARRAY, "color=blue%20black%20brown"),
        ("pipeDelimited", False, ARRAY, "color=blue%7Cblack%7Cbrown"),
        ("deepObject", True, OBJECT, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
        ("form", True, True, "color=true"),
        ("form", True, None, "color="),
        ("form", True, {"a&b": "c=d"}, "a%26b=c%3Dd"),
    ],
)
def test_values_in_a_query(style: str, explode: bool, value: Any, expected: str) -> None:
    assert "&".join(parameter("query", style, explode).in_query(value)) == expected


def test_values_as_json_and_in_a_header() -> None:
    assert parameter("query", "form", False, as_json=True).in_query({"a": 1}) == ["color=%7B%22a%22%3A1%7D"]
    header = parameter("header", "simple", False)
    assert header.in_header(ARRAY) == "blue,black,brown"
    assert parameter("header", "simple", True).in_header(OBJECT) == "R=100,G=200,B=150"
    for bad in ("a\r\nX: y", "é", "a\0"):
        with pytest.raises(ToolInputError):
            header.in_header(bad)


@pytest.mark.parametrize("value", ["", ".", "..", "a/..", "..\\a", [], ["a", ".."], {"a": ".."}, None])
def test_values_that_would_change_the_path_are_refused(value: Any) -> None:
    with pytest.raises(ToolInputError):
        parameter("path", "simple", False).in_path(value)
