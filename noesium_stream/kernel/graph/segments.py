"""When an execution of a graph stops, so that the run goes on in a new segment."""

from __future__ import annotations

from typing import Any, Protocol

from langgraph.errors import GraphBubbleUp

from noesium_stream.kernel.graph.resume import first_step
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.run_history import RunHistory
from noesium_stream.kernel.segment_state import is_quiet

RETRY_SHARE = 10
"""After a segment could not begin, it is tried again a tenth of its length later."""


class SegmentDueError(GraphBubbleUp):
    """Ends an execution before a superstep: the run goes on in a new segment."""


class Segments(Protocol):
    """How the runs of an agent are divided into segments."""

    @property
    def steps(self) -> int:
        """Supersteps after which a segment ends, if the run has nothing under way."""

    async def begin(self, journal: RunJournal, initial_state: Any) -> bool:
        """Begin the next segment of a run in one commit; return whether it has begun.

        Raises:
            FencedError, CommitUnknownError: this process does not own the run any more.
        """


class SegmentEnd:
    """Decides before which superstep the segment of a run ends.

    Attributes:
        due: whether it ends here.
    """

    def __init__(self, steps: int) -> None:
        self.due = False
        self._steps = steps
        self._not_before = 0

    def check(self, history: RunHistory, number: int) -> None:
        """Raise `SegmentDueError` if the segment ends before this superstep, of which nothing has begun."""
        if not self.due:
            long = number - first_step(history) >= self._steps and number >= self._not_before
            self.due = long and not any(key[0] >= number for key in history.entered) and is_quiet(history)
        if self.due:
            raise SegmentDueError

    def postpone(self, history: RunHistory) -> None:
        """Go on in the segment for a while: the next one could not begin."""
        self.due = False
        self._not_before = max(history.steps, default=0) + 1 + max(1, self._steps // RETRY_SHARE)
