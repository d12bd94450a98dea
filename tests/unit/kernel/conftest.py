"""What all tests of the kernel share."""

from __future__ import annotations

import pytest

from noesium_stream.kernel import run_context


@pytest.fixture(autouse=True)
def no_step_is_sent_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that has to be on the log waits for what follows at once, on a busy machine, too."""
    monkeypatch.setattr(run_context, "HOLD_S", 3600.0)
