"""The beginning of a segment: the position of a run in its graph as one event, planned as a move is.

The state is the one that the recorded deltas give, never that of a process, so a segment that begins after a
crash begins with the same event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from noesium_stream.clock import Clock
from noesium_stream.errors import EventValidationError, MigrationError, RecordTooLargeError, StateError
from noesium_stream.event.sealing.seal import MAX_SUBJECTS, SUBJECT, subject_entry, subjects_of_copies
from noesium_stream.event.standard import RunMigrated, RunSegmentStarted
from noesium_stream.kernel.journal import RunIdentity, RunJournal
from noesium_stream.kernel.migration.migration import Migration, Version
from noesium_stream.kernel.migration.plan import plan
from noesium_stream.kernel.migration.walk import scratch, stand
from noesium_stream.kernel.run_history import RunHistory
from noesium_stream.kernel.segment_state import carried
from noesium_stream.kernel.state.typed_json import check_size


async def position(
    version: Version, history: RunHistory, identity: RunIdentity, clock: Clock, initial_state: Any
) -> RunMigrated:
    """Where a run stands in its graph, as a move from the graph to itself.

    Raises:
        MigrationError: its state cannot be told: a `Send` is due, or a channel is of an unknown kind.
    """
    tried = scratch(history)
    point = await stand(version, tried, identity, clock, initial_state)
    same = replace(version, leaving=Migration(of=version.graph, version=version.ref.version))
    return plan(same, version, point, tried, identity.run_id)


def _check_subjects(history: RunHistory, payload: dict[str, Any]) -> None:
    """Refuse a segment whose record would be about more people than one can be.

    Raises:
        EventValidationError: the run and the messages that it has not taken are about more than eight.
    """
    own = {} if history.started is None else subject_entry(history.started.metadata)
    given = own.get(SUBJECT, [])
    about = {*([given] if isinstance(given, str) else given), *subjects_of_copies(payload)}
    if len(about) > MAX_SUBJECTS:
        raise EventValidationError(f"metadata.{SUBJECT}", f"names more than {MAX_SUBJECTS} data subjects")


@dataclass(frozen=True)
class RunSegments:
    """Segments of the runs of one version of a graph; see `Segments`."""

    version: Version
    steps: int

    async def begin(self, journal: RunJournal, initial_state: Any) -> bool:
        """See `Segments.begin`."""
        history, identity = journal.history, journal.identity
        initial = None if history.migrated is not None else initial_state
        try:
            found = await position(self.version, history, identity, journal.clock, initial)
        except MigrationError:
            return False
        event = RunSegmentStarted(
            run_id=identity.run_id,
            segment=history.segment + 1,
            agent_version=history.agent_version or found.agent_version,
            graph=self.version.ref,
            step=found.step,
            state=found.state,
            next=found.next,
            joins=found.joins,
            deferred=found.deferred,
            carried=carried(history),
        )
        payload = event.payload()
        try:
            check_size(payload, "the beginning of a segment", "The run")
            journal.check(event, payload)
            _check_subjects(history, payload)
        except (EventValidationError, RecordTooLargeError, StateError):
            return False
        # 1. The end of the step is staged already: one commit with it. 2. Sent before anything is accepted:
        # what comes later has a higher number in the run, and is read with the segment.
        journal.stage(
            event,
            trace=identity.trace.child(journal.clock.token(8)),
            causation_id=history.last_event_id,
            idempotency_key=f"{identity.run_id}/segment/{event.segment}",
        )
        journal.flush()
        await journal.commit()
        return True
