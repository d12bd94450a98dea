"""What a node finds on a step: that is documented, and nothing else is there."""

from __future__ import annotations

from pathlib import Path

import pytest

import noesium_stream
from noesium_stream.kernel import Step

FOR_NODES = (
    "call_tool",
    "effect",
    "emit",
    "interrupt",
    "invoke",
    "invoke_many",
    "invoke_stream",
    "node",
    "now",
    "nth_signal",
    "random",
    "request_task",
    "run_id",
    "run_sync",
    "set_attributes",
    "signal",
    "sleep",
    "sleep_until",
    "tool",
    "uuid",
    "write",
)
GUIDE = Path(noesium_stream.__file__).parent / "guides" / "agent.md"


def test_a_step_shows_what_is_for_nodes_and_nothing_else() -> None:
    assert tuple(name for name in dir(Step) if not name.startswith("_")) == FOR_NODES


@pytest.mark.parametrize("name", FOR_NODES)
def test_the_guide_and_a_docstring_say_what_it_does(name: str) -> None:
    assert f"step.{name}" in GUIDE.read_text(encoding="utf-8")
    assert getattr(Step, name).__doc__
