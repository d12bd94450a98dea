"""Opens the state of an owned partition, folds committed records into it and writes it regularly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from noesium_stream.errors import CommitUnknownError, LogClosedError, ProjectionError, StateFileError
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.graph_versions import Releases
from noesium_stream.worker.state.journal_entry import entry_of_sent
from noesium_stream.worker.state.known_runs import Bounds
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.restore import restore

WRITE_S: Final = 1.0
WRITE_RECORDS: Final = 5_000
"""Greatest age of the file, in seconds and in journal records."""


class StateStore:
    """Opens the state of one partition for each tenure.

    Args:
        context: context of the partition.
        releases: graph versions that the worker carries of the agent.
        bounds: how long and how many ended runs are known.
        in_file: whether the state is kept on disk for the next start.
    """

    def __init__(
        self, context: PartitionContext, releases: Releases, bounds: Bounds, *, in_file: bool
    ) -> None:
        self.in_file = in_file
        self._context = context
        self._releases = releases
        self._bounds = bounds

    async def open(self) -> StateKeeper:
        """Restore the state as of the journal's end. Raises the errors of `restore`."""
        context, agent = self._context, self._releases.newest.agent
        state = await restore(
            context.log,
            agent.context.home,
            context.agent_type,
            context.partition,
            self._bounds,
            context.progress,
            generation=context.generation,
            in_file=self.in_file,
        )
        graphs = self._releases.graphs
        state.carry("; ".join(f"{graph.graph_id} {graph.version} {graph.fingerprint}" for graph in graphs))
        return StateKeeper(self, state)


class StateKeeper:
    """Keeps the state of one tenure current and on disk.

    A damaged file is discarded. If the file cannot be written, the state is kept in memory from then on. In
    both cases the partition is read anew, as after a commit of unknown outcome.

    Attributes:
        on_broken: called with the error when the state cannot be used any more.
    """

    def __init__(self, store: StateStore, state: PartitionState) -> None:
        self.on_broken: Callable[[Exception], None] = lambda error: None
        self._store = store
        self._state = state
        self._closed = False
        self._broken = False
        self._unwritten = 0
        self._writes = asyncio.create_task(self._write_regularly(), name="write the worker's state")

    @property
    def state(self) -> PartitionState:
        """The state, while the partition is owned.

        Raises:
            LogClosedError: the partition was given up.
        """
        if self._closed:
            raise LogClosedError("the partition was given up")
        return self._state

    def committed(self, records: Sequence[Outgoing], places: Sequence[Position]) -> None:
        """Fold records that were committed to the journal.

        Raises:
            CommitUnknownError: the state could not be changed: the partition has to be read anew.
        """
        try:
            state = self.state
            for record, place in zip(records, places, strict=True):
                state.evolve(entry_of_sent(record, place.offset))
            self._unwritten += len(records)
            if self._unwritten >= WRITE_RECORDS:
                self.write()
        except ProjectionError as error:
            self._note(error)
            raise CommitUnknownError(error.message) from error

    def broke(self, error: ProjectionError) -> None:
        """Report that the state is damaged or cannot be written."""
        self._note(error)
        self.on_broken(CommitUnknownError(error.message))

    def write(self) -> None:
        """Write the file."""
        self._unwritten = 0
        self.state.write()

    def close(self) -> None:
        """Write the state and close it; harmless when repeated."""
        if self._closed:
            return
        self._writes.cancel()
        self._closed = True
        if self._broken:
            self._state.file.discard()
            return
        with suppress(ProjectionError):
            self._state.close()

    def _note(self, error: ProjectionError) -> None:
        self._broken = True
        if not isinstance(error, StateFileError):  # the file cannot be written: use memory from now on
            self._store.in_file = False

    async def _write_regularly(self) -> None:
        while True:
            await asyncio.sleep(WRITE_S)
            try:
                self.write()
            except ProjectionError as error:
                self.broke(error)
                return
