"""Rows that a fold has changed since its last flush, and how to rebuild one of them.

Rebuilding a row from the file and the events since undoes whatever a failed `apply` did to the given state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from noesium_stream.errors import ProjectionError, StateNotStoredError
from noesium_stream.log.record import Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.event_headers import EventHeaders
from noesium_stream.projection.faults import failed_again
from noesium_stream.projection.fold.pending_rows import PendingRows
from noesium_stream.projection.state.codec import StateCodec

TState = TypeVar("TState")

STATE: Final = b"s"
"""First byte of the keys of rows that hold a state."""
CACHED_ROWS: Final = 2_000
CACHED_BYTES: Final = 16_000_000
"""Size limit of the cache of written states, in bytes as stored."""
UNCHANGEABLE: Final = frozenset({int, str, bool, float, type(None)})
"""Immutable types of states."""


class Unstored(NamedTuple):
    """An event whose resulting state cannot be stored, and the later events of its row."""

    error: StateNotStoredError
    record: Record
    later: Sequence[Record]


class ChangedRows(Generic[TState]):
    """States by row, and the events that produced them; `PartitionFold` adds both as it folds.

    If an `apply` raises, a row may be half changed: `forget` goes back to what is in the file.

    Args:
        projection: the projection.
        codec: the codec of its states.
        pending: the rows that are not written yet, on top of those in the file.
        apply: the projection's `apply`, called directly or through a guard.

    Attributes (the dictionaries are never replaced):
        states: current states of the changed rows and of some others.
        since: the events since the last flush, or since `base`, by the rows that they have changed.
        base: the rows before these events, where that differs from the file.
    """

    def __init__(
        self,
        projection: BaseProjection[TState],
        codec: StateCodec[TState],
        pending: PendingRows,
        apply: Callable[..., Any],
    ) -> None:
        self.states: dict[str, TState | None] = {}
        self.since: dict[str, list[Record]] = {}
        self.base: dict[str, bytes] = {}
        self._projection = projection
        self._codec = codec
        self._pending = pending
        self._states_bytes = 0
        self._apply = apply

    def load(self, key: str) -> tuple[TState | None, int]:
        """The state of a row that is not in `states`, with its size in bytes; None if there is no such row.

        Raises:
            ProjectionError: the key is not a string.
            StateFileError: the stored row is damaged.
        """
        if not isinstance(key, str):
            raise ProjectionError(
                f"`key` of the projection {self._projection.name} returned {type(key).__name__}, not text.",
                hint="Return a text, or None for events that belong to no row.",
            )
        data = self._pending.get(STATE + key.encode())
        if data is None:
            return None, 0
        self._states_bytes += len(data)
        return self._codec.decode(data), len(data)

    def written(self, size: int) -> None:
        """Note that the changes, of this size in bytes, are in the file; trim the cache."""
        self.since.clear()
        self.base.clear()
        self._states_bytes += size
        if len(self.states) > CACHED_ROWS or self._states_bytes > CACHED_BYTES:
            self.states.clear()
            self._states_bytes = 0

    def forget(self) -> None:
        """Go back to what is in the file."""
        self.states.clear()
        self.since.clear()
        self.base.clear()
        self._states_bytes = 0

    def as_far_as_possible(self, key: str) -> tuple[bytes | None, Unstored | None]:
        """Rebuild a row up to the first event whose state cannot be stored, and leave it there."""
        records = self.since[key]
        data = self._based(key)
        for index, record in enumerate(records):
            try:
                state = self._again(data, [record])
                data = None if state is None else self._codec.encode(state)
            except StateNotStoredError as error:
                self.since[key] = records[:index]
                self.states[key] = None if data is None else self._codec.decode(data)
                return data, Unstored(error, record, records[index + 1 :])
        return data, None

    def restore(self, key: str) -> None:
        """Rebuild a row, to undo what a failed `apply` may have done to its state."""
        if type(self.states.get(key)) in UNCHANGEABLE:
            return
        self.states.pop(key, None)
        if key in self.since:
            self.states[key] = self._again(self._based(key), self.since[key])

    def take_back(self, key: str, record: Record) -> None:
        """Rebuild a row without this event, if it is the row's last one."""
        since = self.since.get(key, [])
        if since and since[-1] is record:
            since.pop()
        self.states.pop(key, None)
        if since:
            self.states[key] = self._again(self._pending.file.get(STATE + key.encode()), since)
        else:
            self.since.pop(key, None)

    def _based(self, key: str) -> bytes | None:
        """The row before the events in `since`."""
        return self.base.get(key) or self._pending.file.get(STATE + key.encode())

    def _again(self, data: bytes | None, records: Sequence[Record]) -> TState | None:
        """Fold these records on top of a stored state."""
        state = None if data is None else self._codec.decode(data)
        for record in records:
            event: Any = EventHeaders(record) if self._projection.headers_only else record.newest
            try:
                state = self._apply(self._projection.initial_state() if state is None else state, event)
            except Exception as error:
                raise failed_again(self._projection.name, record, error) from error
            record.release()
        return state
