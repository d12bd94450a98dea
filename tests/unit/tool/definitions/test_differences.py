"""The differences between two definitions, field by field."""

from __future__ import annotations

from noesium_stream.tool.definitions.differences import Difference, differences


def test_fields_that_changed_came_or_went_are_named_by_path() -> None:
    before = {"a": {"x": 1, "y": [1]}, "b": None, "c": 1, "d": "same"}
    after = {"a": {"x": 2, "y": [1, 2]}, "b": {"z": 1}, "c": True, "d": "same", "e": None}
    assert differences(before, after) == [
        Difference("a.x", 1, 2),
        Difference("a.y", [1], [1, 2]),
        Difference("b", None, {"z": 1}),
        Difference("c", 1, True),
        Difference("e", None, None, was_there=False),
    ]
    assert differences(before, before) == []
