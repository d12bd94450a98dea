"""How long a command that starts itself again waits."""

from __future__ import annotations

import pytest

from noesium_stream.cli.commands.supervise import pause_after


@pytest.mark.parametrize(
    ("lived_s", "before_s", "pause_s"),
    [(0.1, None, 0), (0.1, 0.0, 1), (9.9, 1.0, 2), (0.1, 16.0, 30), (0.1, 30.0, 30), (10.0, 30.0, 0)],
)
def test_it_waits_longer_for_a_child_that_dies_again_and_again(
    lived_s: float, before_s: float | None, pause_s: float
) -> None:
    assert pause_after(lived_s, before_s) == pause_s
