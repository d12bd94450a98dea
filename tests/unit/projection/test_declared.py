"""What a projection's class declares is judged before anything is folded."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.errors import ProjectionLoadError
from tests.support.attach import Numbers


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("topics", "agent.researcher.*", "topics is a plain text: 'agent.researcher.*'"),
        ("topics", (b"events.*",), "topics is no tuple of texts"),
        ("topics", None, "topics is no tuple of texts"),
        ("event_types", "tool.", "event_types is a plain text: 'tool.'"),
        ("event_types", 7, "event_types is no tuple of texts: 7"),
        ("version", 0, "version is 0, not 1 or more"),
        ("name", "Bad Name", "is 'Bad Name', not a name of a projection"),
        ("on_error", "sometimes", "on_error is 'sometimes', not hold or stop"),
    ],
)
def test_a_wrong_declaration_is_one_clear_error(attribute: str, value: Any, said: str) -> None:
    kind = type("Wrong", (Numbers,), {attribute: value})
    with pytest.raises(ProjectionLoadError, match="Wrong") as raised:
        kind().check()
    assert said in raised.value.message
    assert raised.value.hint


def test_a_text_that_has_lost_its_comma_is_shown_with_it() -> None:
    kind = type("Wrong", (Numbers,), {"topics": "events.*"})
    with pytest.raises(ProjectionLoadError) as raised:
        kind().check()
    assert raised.value.hint == "Declare topics = ('events.*',)."


@pytest.mark.parametrize("types", [None, (), ("tool.",), ["tool."], frozenset({"tool."})])
def test_collections_of_texts_are_taken(types: Any) -> None:
    type("Right", (Numbers,), {"event_types": types})().check()
