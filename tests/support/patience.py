"""Pieces of answers may be lost on a log that is slow. Tests that count them wait for as long as it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from noesium_stream.worker.pieces import arrivals, outbox
from tests.support.reading import PATIENCE_S


def lose_no_piece(set_to: Callable[[Any, str, float], None] = setattr) -> None:
    """Have the workers of this process wait for the log, however slow it is."""
    set_to(arrivals, "CATCH_UP_S", PATIENCE_S)
    set_to(outbox, "PATIENCE_S", PATIENCE_S)
    set_to(outbox, "HOLD_S", PATIENCE_S)


@pytest.fixture
def no_piece_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lose_no_piece`, for one test."""
    lose_no_piece(monkeypatch.setattr)
