"""Moves of recorded runs: planned again and compared with the log, or planned as a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from noesium_stream.errors import MigrationError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import RunMigrated
from noesium_stream.kernel.journal import RunIdentity
from noesium_stream.kernel.migration.migration import Migration, Version
from noesium_stream.kernel.migration.move_run import plan_moves
from noesium_stream.kernel.migration.segment import position
from noesium_stream.kernel.recording.end_of_recording import StillClock
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.kernel.run_history import RunHistory
from noesium_stream.kernel.verify.difference import Difference, first_difference, shown

_SAID: Final = ("step", "state", "next", "joins", "deferred")

Begun = Callable[[Migration], Any]


async def planned(
    versions: Sequence[Version], run: RecordedRun, recorded: Iterable[EventEnvelope], begun: Begun
) -> list[RunMigrated]:
    """The moves of a run from the first of `versions` to the last, after `recorded`.

    Raises:
        MigrationError: it cannot be moved.
    """
    history, last = _folded(run, recorded)
    return await plan_moves(versions, history, identity_of(run), StillClock(last.timestamp_ms), begun)


def identity_of(run: RecordedRun) -> RunIdentity:
    """The identity of a recorded run."""
    started = run.started
    return RunIdentity(
        run.run_id,
        started.producer,
        started.trace,
        started.correlation_id or run.run_id,
        run.command.event_id,
    )


async def compare_segment(
    version: Version,
    run: RecordedRun,
    before: Iterable[EventEnvelope],
    started: EventEnvelope,
    initial_state: Any,
) -> Difference | None:
    """The difference between the state that a segment began with and that of the records before it."""
    step = int(started.payload["step"])
    history, last = _folded(run, before)
    try:
        again = await position(
            version, history, identity_of(run), StillClock(last.timestamp_ms), initial_state
        )
    except MigrationError as error:
        return Difference(step, None, "the segment cannot begin any more", started.event_type, error.message)
    return _compared(step, f"the beginning of segment {started.payload['segment']}", started, again.payload())


async def compare_move(
    versions: Sequence[Version],
    run: RecordedRun,
    before: Iterable[EventEnvelope],
    move: EventEnvelope,
    begun: Begun,
) -> Difference | None:
    """The differences in a repeated move: in its function, or in the old graph's result."""
    step = int(move.payload["step"])
    try:
        (again,) = await planned(versions, run, before, begun)
    except MigrationError as error:
        return Difference(step, None, "the run is not moved any more", "run.migrated", error.message)
    return _compared(step, "the move", move, again.payload())


def _folded(run: RecordedRun, recorded: Iterable[EventEnvelope]) -> tuple[RunHistory, EventEnvelope]:
    """The history of these records, and the last one of them."""
    history = RunHistory()
    last = run.started
    for last in recorded:
        history.apply(last)
    return history, last


def _compared(step: int, what: str, recorded: EventEnvelope, payload: Mapping[str, Any]) -> Difference | None:
    found = first_difference(
        {name: recorded.payload.get(name) for name in _SAID}, {name: payload.get(name) for name in _SAID}
    )
    if found is None:
        return None
    return Difference(step, None, f"{what} differs at {found[0]}", *map(shown, found[1:]))
