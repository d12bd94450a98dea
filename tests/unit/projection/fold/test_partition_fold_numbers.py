"""States that are whole numbers: the events that made them need not be kept until the flush."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.fold.partition_fold import PartitionFold
from tests.support.folding import fold_of, numbered


class Turns(BaseProjection[Any]):
    """A sum; 100 makes a list of it, that `apply` changes in place, 200 what cannot be stored, 300 fails."""

    name = "turns"
    in_place = True

    def initial_state(self) -> Any:
        return 0

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def apply(self, state: Any, event: EventEnvelope) -> Any:
        n = event.payload["n"]
        if n == 200:
            return float("nan")
        if n == 400:
            return sum(state)
        if isinstance(state, list):
            state.append(n)
            if n == 300:
                raise ValueError("refused")
            return state
        if n == 300:
            raise ValueError("refused")
        return [state, n] if n == 100 else state + n


@pytest.mark.parametrize(
    ("events", "state", "held"),
    [
        ([1, 2, 3], 6, 0),
        ([1, 2, 300, 4], 3, 2),
        ([1, 2, 100, 4], [3, 100, 4], 0),
        ([1, 2, 100, 4, 300, 5], [3, 100, 4], 2),
        ([1, 2, 200, 4], 3, 2),
        ([1, 2, 100, 4, 200, 4], [3, 100, 4], 2),
        ([1, 100, 400, 2, 100, 300], [103, 100], 1),
        ([1, 100, 400, 2, 200], 103, 1),
        ([1, 2**63 - 2, 1, 1], 2**63 + 1, 0),
    ],
)
@pytest.mark.parametrize("every", [1, 2, 100])
def test_a_row_that_was_a_number_is_made_again_from_that_number(
    tmp_path: Path, events: list[int], state: Any, held: int, every: int
) -> None:
    fold: PartitionFold[Any] = fold_of(Turns(), tmp_path / "a.state")
    records = numbered([("a", n) for n in events])
    for start in range(0, len(records), every):
        fold.take(records[start : start + every])
        fold.flush()
    assert dict(fold.rows()) == {"a": state}
    assert fold.manifest.held == held
    fold.file.close()
