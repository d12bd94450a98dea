"""The rows that a fold has changed since its last flush, and how one is made again.

What `apply` may have done to a state that it was given is undone by making the row again: from what is in the
file, and the events since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from noesium_stream.errors import ProjectionError, StateNotStoredError
from noesium_stream.log.record import Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.faults import failed_again
from noesium_stream.projection.headers import EventHeaders
from noesium_stream.projection.pending import Pending
from noesium_stream.projection.state_codec import StateCodec

TState = TypeVar("TState")

STATE: Final = b"s"
"""First byte of the keys of rows that hold a state."""
CACHED_ROWS: Final = 2_000
CACHED_BYTES: Final = 16_000_000
"""Of states in memory that are written already: so many, and as many bytes of them as stored, at most."""
UNCHANGEABLE: Final = frozenset({int, str, bool, float, type(None)})
"""Types of states that nobody can change in place."""


class Unstored(NamedTuple):
    """An event that made a state which cannot be stored, and those of its row after it."""

    error: StateNotStoredError
    record: Record
    later: Sequence[Record]


class ChangedRows(Generic[TState]):
    """States by row, and the events that they are made of; `PartitionFold` puts both in as it folds.

    Args:
        projection: whose.
        codec: of its states.
        pending: rows that are not written yet, and those that are.
        apply: the projection's, however it is called.

    Where it raises, a row may be half made: `forget` goes back to what is in the file.

    Attributes (the same dictionaries from its making on):
        states: as they are now, of changed rows and of some others.
        since: the events since the last flush, or since `base`, by the rows that they have changed.
        base: what rows were before these events, where that is not what is in the file.
    """

    def __init__(
        self,
        projection: BaseProjection[TState],
        codec: StateCodec[TState],
        pending: Pending,
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
        """The state of a row that is not in `states`, and its bytes; None: there is no such row.

        Raises:
            ProjectionError: the key is no text.
            StateFileError: what is there is not what was written.
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
        """What has changed is in the file, and took so many bytes; what is kept in memory stays bounded."""
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
        """Make a row again up to the first event whose state cannot be stored, and leave it there."""
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
        """Undo what a failed `apply` may have done to the state that it was given: make it again."""
        if type(self.states.get(key)) in UNCHANGEABLE:
            return
        self.states.pop(key, None)
        if key in self.since:
            self.states[key] = self._again(self._based(key), self.since[key])

    def take_back(self, key: str, record: Record) -> None:
        """Make a row again without its last event, where that is this one."""
        since = self.since.get(key, [])
        if since and since[-1] is record:
            since.pop()
        self.states.pop(key, None)
        if since:
            self.states[key] = self._again(self._pending.file.get(STATE + key.encode()), since)
        else:
            self.since.pop(key, None)

    def _based(self, key: str) -> bytes | None:
        """What a row was before the events in `since`."""
        return self.base.get(key) or self._pending.file.get(STATE + key.encode())

    def _again(self, data: bytes | None, records: Sequence[Record]) -> TState | None:
        """The state of a row after these records, on top of a stored one."""
        state = None if data is None else self._codec.decode(data)
        for record in records:
            event: Any = record.newest if self._projection.decodes else EventHeaders(record)
            try:
                state = self._apply(self._projection.initial_state() if state is None else state, event)
            except Exception as error:
                raise failed_again(self._projection.name, record, error) from error
            record.release()
        return state
