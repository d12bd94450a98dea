"""Names of tools for models: valid, different, and reversible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.errors import ToolNotFoundError
from noesium_stream.tool.model_names import ModelNames, is_model_name

names = st.lists(st.text("ab._-", min_size=1, max_size=70), max_size=8, unique=True)


@given(names, st.randoms())
def test_every_name_is_valid_and_leads_back_in_whatever_order(given_names: list[str], random: object) -> None:
    found = ModelNames(given_names)
    shown = [found.for_model(name) for name in given_names]
    assert all(map(is_model_name, shown))
    assert [found.of_tool(name) for name in shown] == given_names
    other = ModelNames(reversed(given_names))
    assert [other.for_model(name) for name in given_names] == shown


def test_a_valid_name_stays_and_others_make_room() -> None:
    found = ModelNames(["a.b", "a_b", "c.d"])
    assert found.for_model("a_b") == "a_b"
    assert found.for_model("c.d") == "c_d"
    assert found.for_model("a.b").startswith("a_b_")
    with pytest.raises(ToolNotFoundError, match="no tool 'x'"):
        found.of_tool("x")
