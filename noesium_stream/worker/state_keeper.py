"""Opens the state of an owner's partition, folds into it what is committed, and writes it now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from noesium_stream.errors import CommitUnknownError, LogClosedError, ProjectionError, StateFileError
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.worker.entry import entry_of_sent
from noesium_stream.worker.known_runs import Bounds
from noesium_stream.worker.releases import Releases
from noesium_stream.worker.restore import restore
from noesium_stream.worker.state import PartitionState

WRITE_S: Final = 1.0
WRITE_RECORDS: Final = 5_000
"""The file is as old as this at most, in seconds and in records of the journal."""


class KeepingOwner(Protocol):
    """Whose state it is."""

    log: EventLog
    partition: int
    generation: int


class StateKeeper:
    """The state of one partition, from `open` to `close`, and again.

    A file that is damaged is thrown away, one that cannot be written is done without: in both cases the
    partition is read anew, as after a commit of unknown outcome.

    Args:
        owner: of the partition.
        releases: of the agent whose partition it is.
        bounds: of what is known of ended runs.
        on_lost: told when the state is of no use any more.
        in_file: whether the state is kept for the next start.
    """

    def __init__(
        self,
        owner: KeepingOwner,
        releases: Releases,
        bounds: Bounds,
        on_lost: Callable[[Exception], None],
        *,
        in_file: bool,
    ) -> None:
        self._owner = owner
        self._releases = releases
        self._bounds = bounds
        self._on_lost = on_lost
        self._state: PartitionState | None = None
        self._broken: ProjectionError | None = None
        self._in_file = in_file
        self._unwritten = 0
        self._writes: asyncio.Task[None] | None = None

    @property
    def state(self) -> PartitionState:
        """The state, while the partition is owned.

        Raises:
            LogClosedError: it is not.
        """
        if self._state is None:
            raise LogClosedError("the partition was given up")
        return self._state

    async def open(self) -> PartitionState:
        """The state as of the journal's end. Raises as `restore`."""
        agent = self._releases.newest.agent
        context = agent.context
        self._state = state = await restore(
            self._owner.log,
            context.home,
            agent.agent_type,
            self._owner.partition,
            self._bounds,
            context.progress,
            generation=self._owner.generation,
            in_file=self._in_file,
        )
        graphs = self._releases.graphs
        state.carry("; ".join(f"{graph.graph_id} {graph.version} {graph.fingerprint}" for graph in graphs))
        self._broken = None
        self._unwritten = 0
        self._writes = asyncio.create_task(self._write_regularly(), name="write the worker's state")
        return state

    def committed(self, records: Sequence[Outgoing], places: Sequence[Position]) -> None:
        """Fold what was committed to the journal.

        Raises:
            CommitUnknownError: the state could not take it: the partition has to be read anew.
        """
        try:
            state = self.state
            for record, place in zip(records, places, strict=True):
                state.fold(entry_of_sent(record, place.offset))
            self._unwritten += len(records)
            if self._unwritten >= WRITE_RECORDS:
                self._write()
        except ProjectionError as error:
            self._note(error)
            raise CommitUnknownError(error.message) from error

    def broke(self, error: ProjectionError) -> None:
        """The state is damaged, or cannot be written."""
        self._note(error)
        self._on_lost(CommitUnknownError(error.message))

    def close(self) -> None:
        """Write it and let go of it; harmless when repeated."""
        if self._writes is not None:
            self._writes.cancel()
            self._writes = None
        state, self._state = self._state, None
        if state is None:
            return
        if self._broken is not None:
            state.file.discard()
            return
        with suppress(ProjectionError):
            state.close()

    def _note(self, error: ProjectionError) -> None:
        self._broken = error
        self._in_file &= isinstance(error, StateFileError)  # else it cannot be written: memory has to do

    def _write(self) -> None:
        self._unwritten = 0
        self.state.write()

    async def _write_regularly(self) -> None:
        while True:
            await asyncio.sleep(WRITE_S)
            try:
                self._write()
            except ProjectionError as error:
                self.broke(error)
                return
