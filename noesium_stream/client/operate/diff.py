"""Compares two recorded runs step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from noesium_stream.kernel.recording.recorded_run import CanonicalStep, RecordedRun, canonical_history
from noesium_stream.kernel.run_history import superstep
from noesium_stream.kernel.verify.difference import NOTHING, Difference, first_difference, shown


@dataclass(frozen=True, slots=True)
class RunsDiff:
    """Result of the comparison of two runs.

    Attributes:
        same_steps: number of equal supersteps from the beginning.
        difference: the first difference; None if the runs are equal. `recorded` is the left run's side.
    """

    left: str
    right: str
    same_steps: int
    difference: Difference | None


def diff(left: RecordedRun, right: RecordedRun) -> RunsDiff:
    """Find the first difference of two runs, apart from ids and times."""
    first, second = canonical_history(left), canonical_history(right)
    ours, theirs = ({(step.step, step.path): step for step in side.steps} for side in (first, second))
    shared = -1
    difference = _compare(0, None, "the input", first.input, second.input)
    for key in sorted(ours.keys() | theirs.keys(), key=lambda key: (superstep(key), key)):
        if difference is not None:
            break
        difference = _compare_steps(ours.get(key), theirs.get(key))
        shared = superstep(key) - (difference is not None)
    if difference is None and first.outcome != second.outcome:
        last = first.steps[-1] if first.steps else None
        difference = _compare(last.step if last else 0, None, "the outcome", first.outcome, second.outcome)
    return RunsDiff(left.run_id, right.run_id, max(shared, 0), difference)


def _compare_steps(left: CanonicalStep | None, right: CanonicalStep | None) -> Difference | None:
    step = left or right
    if step is None:
        return None
    number, node = superstep((step.step, step.path)), step.node
    if left is None or right is None:
        sides = [NOTHING if side is None else side.node for side in (left, right)]
        return Difference(number, node, "only one of them runs it", *sides)
    if left.node != right.node:
        return Difference(number, node, "another node runs here", left.node, right.node)
    for name in ("failures", "calls", "events", "completed", "delta"):
        found = _compare(number, node, f"its {name}", getattr(left, name), getattr(right, name))
        if found is not None:
            return found
    return None


def _compare(step: int, node: str | None, what: str, left: Any, right: Any) -> Difference | None:
    found = first_difference(left, right)
    if found is None:
        return None
    path, one, other = found
    at = f" at {path}" if path else ""
    return Difference(step, node, f"{what} differs{at}", shown(one), shown(other))
