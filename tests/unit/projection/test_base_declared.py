"""What a projection's class declares is judged before anything is folded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ProjectionError, ProjectionLoadError
from noesium_stream.log.open import open_log
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.compose import compose
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.stored.folder import merged
from tests.support.attach import Numbers, Sums


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


async def _later(self: Any, state: Any, event: Any) -> Any:
    return state


def _one_by_one(self: Any, *given: Any) -> Any:
    yield given


@pytest.mark.parametrize(
    ("method", "function", "said"),
    [
        ("apply", _later, "Wrong.apply is async."),
        ("merge", _later, "Wrong.merge is async."),
        ("apply", _one_by_one, "Wrong.apply yields."),
        ("key", _one_by_one, "Wrong.key yields."),
    ],
)
def test_a_method_that_a_fold_cannot_call_is_refused(method: str, function: Any, said: str) -> None:
    kind = type("Wrong", (Numbers,), {method: function})
    with pytest.raises(ProjectionLoadError) as raised:
        kind().check()
    assert raised.value.message == said
    assert raised.value.hint


async def test_a_class_in_place_of_a_projection_is_refused_with_what_to_write(tmp_path: Path) -> None:
    kind: Any = Numbers
    log = await open_log("memory://")
    with ProjectionEngine(log) as engine:
        for take in (
            lambda: AttachedProjection(log, kind, tmp_path),
            lambda: engine.register("numbers", kind),
            lambda: compose("both", numbers=kind),
        ):
            with pytest.raises(ProjectionLoadError) as raised:
                take()
            assert raised.value.message == "Numbers is the class of a projection, not one."
            assert raised.value.hint == "Make one of it: Numbers()."
        with pytest.raises(ProjectionLoadError, match="7 is no projection"):
            engine.register("seven", 7)  # type: ignore[arg-type]
    await log.close()


class Poor(Sums):
    """Its `merge` is called on two states only."""

    def merge(self, a: int, b: int) -> int:
        if a + b > 0:
            raise KeyError("mean")
        return None  # type: ignore[return-value]


def test_a_merge_that_fails_is_one_error_that_names_key_and_line() -> None:
    with pytest.raises(ProjectionError) as raised:
        merged(Poor(), [1, 2], "k7")
    assert raised.value.message.startswith(
        "`merge` of the projection sums failed on states of the key 'k7': KeyError: 'mean' ("
    )
    assert "test_base_declared.py:" in raised.value.message
    with pytest.raises(ProjectionError, match="returned None for states of the key 'k7'"):
        merged(Poor(), [0, 0], "k7")
