"""Lists of tools."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.tool.mcp import mcp
from noesium_stream.tool.mcp.listing import listing_of, name_for_models

SERVER = mcp("crm").server
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=9,
)
NAMES = st.sampled_from(["name", "inputSchema", "outputSchema", "description", "annotations", "type"])


@given(st.lists(JSON | st.dictionaries(NAMES, JSON, max_size=5), max_size=5))
def test_whatever_a_server_lists_each_item_is_a_tool_or_a_warning(items: list[Any]) -> None:
    found = listing_of(SERVER, items)
    assert len(found.offered) + len(found.warnings) == len(items)


@pytest.mark.parametrize("tool", ["find", "a.b", "x" * 128, "x" * 58])
def test_a_name_is_one_that_models_take(tool: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name_for_models("crm", tool))


def test_long_names_that_begin_alike_stay_apart() -> None:
    assert name_for_models("crm", "x" * 100 + "a") != name_for_models("crm", "x" * 100 + "b")


def test_two_tools_of_one_name_are_one_and_a_warning() -> None:
    items = [{"name": name, "inputSchema": {"type": "object"}} for name in ("a.b", "a_b")]
    found = listing_of(SERVER, items)
    assert [one.remote for one in found.offered] == ["a.b"]
    assert "another tool has this name" in found.warnings[0]


def test_what_is_declared_and_no_hint_decides_the_class() -> None:
    item = {"name": "a", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    [one] = listing_of(SERVER, [item]).offered
    assert one.tool.side_effect_class == "external"
    assert one.tool.tags == ("server-says:read-only",)
