"""The share of a run's budget that a run gets which it calls."""

from __future__ import annotations

from noesium_stream.event.standard import Amounts
from noesium_stream.kernel.step.position import Place


def age_ms(place: Place) -> int:
    """The wall time of a step's run."""
    started = place.history.started
    return 0 if started is None else max(0, place.clock.now_ms() - started.timestamp_ms)


def share_of(place: Place) -> Amounts | None:
    """What a run gets that this step calls now; None: the run has no budget."""
    limits = place.journal.limits
    budget = None if limits is None else limits.budget
    return place.history.spending.share(budget, age_ms(place))
