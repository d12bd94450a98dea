"""The phases of a lone run, from the spans that were noted."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.bench.worker_lone import Spans, _phases


def test_the_phases_of_a_run_add_up_to_the_whole() -> None:
    spans: Spans = defaultdict(list)
    spans["commits"] = [(1.003, 1.010), (1.012, 1.020), (1.5, 1.6)]  # the last one comes after the result
    spans["flush"] = [(1.004, 1.008), (1.013, 1.016)]
    spans["end"] = [(1.004, 1.010), (1.013, 1.019)]
    found = _phases(spans, 1.0, 1.002, 1.021)
    assert found.pop("number") == 2
    parts = ("append", "wake-up", "commits", "between", "back")
    assert sum(found[part] for part in parts) == pytest.approx(found["whole"])
    expected = {"whole": 21, "append": 2, "wake-up": 1, "commits": 15, "between": 2, "back": 1}
    assert found == pytest.approx({**expected, "flush": 7, "end": 5})
