"""The graphs that undid parts of a recorded run, as they are found now."""

from __future__ import annotations

from collections.abc import Iterator

from langgraph.graph.state import CompiledStateGraph

from noesium_stream.errors import KernelError
from noesium_stream.kernel.canonical_history import RecordedRun
from noesium_stream.kernel.compensation_plan import Undoing, undoings
from noesium_stream.kernel.history import RunHistory
from noesium_stream.kernel.reference import Graph, find


def undoing_graphs(run: RecordedRun, agent: object) -> Iterator[tuple[Undoing, Graph]]:
    """What was begun to be undone by a graph, in this order; what cannot be found here is left out: it is no
    part of the code that is compared.
    """
    history = RunHistory()
    for event in (*run.shared, *(item.event for item in run.events)):
        history.apply(event)
    for part in undoings(history, run.run_id, run.input):
        if part.base not in history.undoing:
            continue
        try:
            found = find(part.reference, agent)
        except KernelError:
            continue
        if isinstance(found, CompiledStateGraph):
            yield part, found
