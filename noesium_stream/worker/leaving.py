"""A run that its worker cannot go on with says so in its journal, and that it goes on when one can.

Once, however often workers start: `run.parked` is written where the last word is not the same already.
"""

from __future__ import annotations

import re
from typing import Final

from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.standard import GraphRef, RunParked, RunResumed
from noesium_stream.worker.releases import Releases, named
from noesium_stream.worker.session import RunSession

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
"""In the text of an object; another one in every process."""


def leave(session: RunSession, carried: Releases, why: str) -> str:
    """Let a run wait for a worker that carries its graph; return why, in a line for people.

    Args:
        session: the run.
        carried: what this worker has.
        why: what keeps the run from moving to it.
    """
    pinned = GraphRef.model_validate(session.history.pinned)
    reason = f"it waits for {named(pinned)}; the worker has {carried}, and {why}"
    reason = _ADDRESS.sub("", reason)
    if session.history.parked is None or _ADDRESS.sub("", session.history.parked) != reason:
        _say(session, RunParked(run_id=session.run_id, reason=reason, graph=pinned))
    return f"run {session.run_id} is parked: {reason}"


def go_on(session: RunSession, graph: GraphRef) -> None:
    """The worker carries the run's graph: say so if the run was parked.

    One that has to be moved to `graph` first, or that is ending, says that by what it writes.
    """
    history = session.history
    if history.parked is None or history.compensation is not None or history.stop is not None:
        return
    if history.pinned == graph.model_dump():
        _say(session, RunResumed(run_id=session.run_id))


def _say(session: RunSession, event: DomainEvent) -> None:
    session.stage(event, trace=session.identity.trace, causation_id=session.identity.started_event_id)
    session.flush()
