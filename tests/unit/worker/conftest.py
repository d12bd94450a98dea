"""How long workers under test are patient with a machine that stands still."""

from __future__ import annotations

import pytest

from noesium_stream.worker import host
from noesium_stream.worker.commit import partition_writer
from tests.support.reading import PATIENCE_S


@pytest.fixture(autouse=True)
def proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit proves for long that a partition is owned: who holds commits would hold the question, too.

    What comes of an old proof has tests of its own (`test_partition_writer.py`).
    """
    monkeypatch.setattr(partition_writer, "PROOF_S", PATIENCE_S)


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker says nothing of a log that answers late, and gives nothing up for it."""
    monkeypatch.setattr(partition_writer, "DRAIN_S", PATIENCE_S)
    monkeypatch.setattr(host, "PATIENCE_S", PATIENCE_S)
    monkeypatch.setattr(host, "FAREWELL_S", PATIENCE_S)
