"""Moves of one open run to the newest version of its graph: planned in full, then written in one commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from noesium_stream.clock import Clock
from noesium_stream.errors import EventValidationError, MigrationError, RecordTooLargeError, brief
from noesium_stream.event.standard import RunMigrated
from noesium_stream.kernel.journal import RunIdentity, RunJournal
from noesium_stream.kernel.migration.migration import Migration, Version
from noesium_stream.kernel.migration.plan import plan
from noesium_stream.kernel.migration.walk import scratch, stand
from noesium_stream.kernel.run_history import RunHistory

InitialState = Callable[[Migration], Any]
"""Returns the state that the run began with, in the form of a migration's old graph."""


async def plan_moves(
    versions: Sequence[Version],
    history: RunHistory,
    identity: RunIdentity,
    clock: Clock,
    initial_state: InitialState,
) -> list[RunMigrated]:
    """The moves from the first of `versions`, which the run is pinned to, to the last; writes nothing.

    Raises:
        MigrationError: the run cannot be moved, or not yet.
    """
    tried = scratch(history)
    moves: list[RunMigrated] = []
    for old, new in itertools.pairwise(versions):
        point = await stand(old, tried, identity, clock, _initial(old, tried, initial_state))
        move = plan(old, new, point, tried, identity.run_id)
        tried.apply(move.to_envelope(identity.agent, identity.trace, None, clock=clock))
        moves.append(move)
    return moves


async def move_run(versions: Sequence[Version], journal: RunJournal, initial_state: InitialState) -> None:
    """Move the run of `journal` from the first of `versions` to the last; return when that is on the log.

    Raises:
        MigrationError: it cannot be moved, or not yet; nothing was written.
        FencedError, CommitUnknownError: this process does not own the run any more.
    """
    history, identity = journal.history, journal.identity
    for move in await plan_moves(versions, history, identity, journal.clock, initial_state):
        journal.stage(
            move,
            trace=identity.trace.child(journal.clock.token(8)),
            causation_id=history.last_event_id,
            idempotency_key=f"{identity.run_id}/{move.step}/migrated/{move.to_graph.version}",
        )
    try:
        await journal.commit()
    except (EventValidationError, RecordTooLargeError) as error:
        raise MigrationError(f"The log does not take the move: {brief(error)}", hint=error.hint) from error


def _initial(old: Version, history: RunHistory, initial_state: InitialState) -> Any:
    if history.migrated is not None or old.leaving is None:
        return None  # its graph begins with the state of the last move
    try:
        return initial_state(old.leaving)
    except Exception as error:
        raise MigrationError(
            f"The state that the run began with cannot be told: {type(error).__name__}: {brief(error)}",
            hint="Migration(initial_state=...) takes the old agent's `initial_state`.",
        ) from error
