"""The graphs that undid parts of a recorded run, as today's code defines them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from langgraph.graph.state import CompiledStateGraph

from noesium_stream.errors import KernelError
from noesium_stream.kernel.callable_reference import Graph, find
from noesium_stream.kernel.compensation.plan import Undoing, undoings
from noesium_stream.kernel.reach import Reach
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.kernel.run_history import RunHistory


def undoing_graphs(
    run: RecordedRun, agent: object, reaches: Sequence[Reach]
) -> Iterator[tuple[Undoing, Graph]]:
    """Compensations that a graph has started, in this order. A graph that cannot be found here is left out:
    it is no part of the compared code.
    """
    history = RunHistory()
    for event in (*run.shared, *(item.event for item in run.events)):
        history.apply(event)
    for part in undoings(history, run.run_id, run.input):
        if part.base not in history.undoing:
            continue
        try:
            found = find(part.reference, agent, reaches)
        except KernelError:
            continue
        if isinstance(found, CompiledStateGraph):
            yield part, found
