"""The fold of one partition into its state file.

A record is folded once: rows and cursor are written together, and the cursor says which records are folded.
Records read since the last `flush` are in memory only; after a crash they are folded again.

An event that `apply` cannot take leaves no trace in its row: the row is rebuilt from the file and from the
records since the last flush. The same happens if a state turns out at the flush to be impossible to store:
the event that produced it becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

from noesium_stream.errors import (
    CorruptRecordError,
    EventHeldError,
    ImpureProjectionError,
    StateNotStoredError,
)
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.sealing.seal import is_erased
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.record import Decoder, Record
from noesium_stream.observability import events_processed
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.event_headers import EventHeaders, id_if_told, key_of_unknown, type_told
from noesium_stream.projection.faults import (
    Misplaced,
    is_no_fault_of_the_event,
    located,
    refuse_exit,
    stopped_by,
)
from noesium_stream.projection.fold.changed_rows import STATE, ChangedRows
from noesium_stream.projection.fold.dead_letters import Letter
from noesium_stream.projection.fold.held_letters import HeldLetters
from noesium_stream.projection.fold.pending_rows import PendingRows, RunNumbers
from noesium_stream.projection.fold.repeats import StoredRepeats, identity_of
from noesium_stream.projection.fold_guard import FOLDING, through
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.manifest import Manifest
from noesium_stream.projection.state.snapshots import Snapshots
from noesium_stream.projection.state.state_file import StateFile

TState = TypeVar("TState")

UNFLUSHED: Final = 5_000
"""Maximum number of folded events that are not written yet."""
UNFLUSHED_BYTES: Final = 16_000_000
"""Approximate limit of the size of these events and of the states that they have changed."""
_EVENT_BYTES: Final = UNFLUSHED_BYTES // UNFLUSHED
_NUMBER_BYTES: Final = 2_000
_MISSING: Final[Any] = object()
_WHOLE: Final = 1 << 63
_FORGOTTEN: Final[list[Record]] = []
"""Shared empty list: the row has changed, and its current state is its own base."""


class PartitionFold(Generic[TState]):
    """Folds records into a state file; not thread-safe.

    Args:
        projection: the projection.
        codec: the codec of its states.
        file: the state file, open for writing.
        journal: whether the partition is a journal's. Its records are numbered per run, and copies of events
            that a run received from other runs are skipped. Elsewhere repeated events are (`repeats`).
        call: how `key` and `apply` are called; a guard may stand in between.
        snapshots: notified of each flush; None takes no snapshots.
        flushes: whether `take` flushes by itself when much is unwritten.
        misplaced: makes the error for an event whose row may have parts in other partitions: its key is not
            the record's; None: no event is refused for that.
    """

    def __init__(
        self,
        projection: BaseProjection[TState],
        codec: StateCodec[TState],
        file: StateFile,
        *,
        journal: bool,
        call: Callable[..., Any] | None = None,
        snapshots: Snapshots | None = None,
        flushes: bool = True,
        misplaced: Misplaced | None = None,
    ) -> None:
        projection.check()
        self.projection = projection
        self._takes_erased = projection.takes_erased
        self.file = file
        self.manifest: Manifest = file.manifest
        self._codec = codec
        self._journal = journal
        self._snapshots = snapshots
        self._flushes = flushes
        self._misplaced = misplaced
        self._apply = through(call, projection.apply)
        self._key = through(call, projection.key)
        self._keys = through(call, projection.keys) if projection.spreads() else None
        types = projection.event_types
        self._keep = None if types is None else TypeFilter(types)
        self._pending = PendingRows(file)
        self._numbers = RunNumbers(self._pending, copies=projection.include_copies)
        self._held = HeldLetters(self._pending)
        self._repeats = StoredRepeats(self._pending)
        self._changed = ChangedRows(projection, codec, self._pending, self._apply)
        self._states, self._since = self._changed.states, self._changed.since
        # Plain states are immutable and can always be stored, so their events need not be remembered.
        self._forgets = codec.plain and self._keys is None
        self._room = UNFLUSHED_BYTES
        self._taken = 0
        self._moved = False
        self._last: Record | None = None

    @property
    def cursor(self) -> int:
        """The next offset to fold."""
        return self.manifest.cursor if self._last is None else self._last.offset + 1

    @property
    def unflushed_bytes(self) -> int:
        """Approximate memory that the next flush releases, in bytes."""
        return UNFLUSHED_BYTES - self._room

    def take(self, records: Iterable[Record]) -> None:
        """Fold the next records; skip those below the cursor.

        Raises:
            EventHeldError: with `on_error = "stop"`: an event cannot be taken. Everything before it is
                folded.
            SequenceGapError: the journal lacks a record of a run.
            ImpureProjectionError: `call` found the projection impure.
            StateFileError: the file is damaged: discard it.
            ProjectionError: `key` did not return a string, or the file cannot be written.
            LogUnavailableError: a schema needed to decode a record is not available now.
        """
        with FOLDING:
            self._take(records)

    def _take(self, records: Iterable[Record]) -> None:
        cursor, keep, journal = self.cursor, self._keep, self._journal
        for record in records:
            if record.offset < cursor:
                continue
            if not journal or self._is_next(record):
                event_type = None if keep is None else type_told(record)
                if keep is None or event_type is None or keep.keeps(event_type):
                    try:
                        self._fold(record)
                    except EventHeldError:
                        if journal:
                            self._numbers.give_back(record)  # else a later retry would look like a repeat
                        raise
                    self._taken += 1
                    self._room -= _EVENT_BYTES + len(record.value)
            self._last = record
            if self._room <= 0 and self._flushes:
                self.flush()

    def advance(self, cursor: int) -> None:
        """Move the cursor to an offset up to which the reader found nothing to fold."""
        if cursor > self.cursor:
            self._settle()
            self.manifest = replace(self.manifest, cursor=cursor)
            self._moved = True

    def begin_at(self, first: int) -> None:
        """Start a new state at the log's first retained offset; flush."""
        self.manifest = replace(self.manifest, first=first)
        self.advance(first)
        self.flush()

    def flush(self) -> None:
        """Write the changed rows with the cursor.

        Raises:
            EventHeldError: with `on_error = "stop"`: an event made a state that cannot be stored.
            StateFileError, ProjectionError: as `StateFile.commit`.
        """
        self._settle()
        rows = self._pending.rows
        if not (self._moved or rows or self._since):
            return
        size = 0
        for key in list(self._since):
            data = self._encoded(key)
            rows[STATE + key.encode()] = data
            size += len(data or b"")
        self._numbers.settle()
        self._repeats.settle()
        held = self._held
        self.manifest = replace(self.manifest, held=held.letters, blocked=held.keys)
        before = self.file.manifest.events
        self.file.commit(rows, self.manifest)
        self.manifest = self.file.manifest
        attributes = {"noesium.reader": "projection", "noesium.name": self.projection.name}
        events_processed.add(self.manifest.events - before, attributes)
        rows.clear()
        self._changed.written(size)
        self._numbers.written()
        self._repeats.written()
        self._moved, self._room = False, UNFLUSHED_BYTES
        if self._snapshots is not None:
            self._snapshots.after_flush(self.manifest)

    def state(self, key: str) -> TState | None:
        """The state of a row, including unflushed events; None if there is no such row.

        Raises `StateFileError`.
        """
        found: Any = self._states.get(key, _MISSING)
        kind = type(found)
        if found is None or (self._codec.plain and kind is int and -_WHOLE <= found < _WHOLE):
            return found  # type: ignore[no-any-return]
        if found is _MISSING:
            data = self._pending.get(STATE + key.encode(errors="surrogatepass"))
        else:
            data = self._encoded(key)  # a copy: the caller's changes must not reach the fold
        return None if data is None else self._codec.decode(data)

    def rows(self, prefix: str = "") -> Iterator[tuple[str, TState]]:
        """Rows whose keys begin with `prefix`, in UTF-8 byte order, as of the last flush."""
        for key, data in self.file.scan(STATE + prefix.encode()):
            yield key[len(STATE) :].decode(), self._codec.decode(data)

    def letters(self) -> Iterator[Letter]:
        """The dead letters by key and offset, as of the last flush."""
        return self._held.all()

    def redrive(self, decoder: Decoder, keys: Collection[str | None] | None = None) -> tuple[int, int]:
        """Retry the letters in order, then flush. Those that fail again remain and hold back their keys.

        Args:
            decoder: the log's decoder.
            keys: the keys whose letters to retry; None retries all.

        Returns:
            The number of letters that were folded, and the number that remain.
        """
        self.flush()
        before = self._held.letters
        with FOLDING:
            tried = self._held.redrive(keys, partial(self._retake, decoder), self._flush_if_full)
        self.flush()
        stay = self._held.letters
        folded = before - stay
        return folded, stay if keys is None else tried - folded

    def _retake(self, decoder: Decoder, letter: Letter) -> bytes | None:
        at = self.file.manifest.identity
        record = letter.record(at.topic, at.partition, decoder)
        try:
            if self._journal:
                _ = record.number  # needed to tell repeats and copies
        except CorruptRecordError as error:
            return self._refuse(record, None, error, stop=False)
        kept = self._fold(record, first=False, released=letter.key)
        self._room -= _EVENT_BYTES + len(record.value)
        return kept

    def _flush_if_full(self) -> None:
        if self._room <= 0:
            self.flush()

    def _settle(self) -> None:
        """Move the manifest to the last taken record."""
        last = self._last
        if last is not None:
            self.manifest = replace(
                self.manifest,
                cursor=last.offset + 1,
                last_event_id=id_if_told(last),
                last_offset=last.offset,
                last_ms=last.timestamp_ms,
                events=self.manifest.events + self._taken,
            )
            self._last, self._taken, self._moved = None, 0, True

    def _is_next(self, record: Record) -> bool:
        try:
            return self._numbers.is_next(record)
        except CorruptRecordError as error:
            self._refuse(record, None, error)
            return False

    def _fold(self, record: Record, *, first: bool = True, released: str | None = None) -> bytes | None:
        """Fold one record; return its letter's row if it became a letter. `first`: it is no letter yet."""
        key: str | None = None
        try:
            record.prove()
            event: Any = EventHeaders(record) if self.projection.headers_only else record.newest
            if self._passes_over(event, record, first):
                return None
            if self._keys is not None:
                self._advance_all(self._keys(event), event, record)
                return None
            key = self._key(event)
            if key is None:
                return None
            if self._held.keys and key != released and self._held.holds(key):
                return self._held.add(record, key, None)
            self._advance(key, event, record)
        except CorruptRecordError as error:
            told = key_of_unknown(record, self._key, self.projection.headers_only) if key is None else key
            return self._refuse(record, told, error, stop=first)
        except Exception as error:
            if is_no_fault_of_the_event(error):
                self._abandon()
                if isinstance(error, ImpureProjectionError):
                    raise located(error, record) from error
                raise
            return self._refuse(record, key, error, stop=first)
        except BaseException as error:
            self._abandon()
            refuse_exit(self.projection.name, record, error)
            raise
        return None

    def _passes_over(self, event: Any, record: Record, first: bool) -> bool:
        """Whether an event is none of the projection's, or repeats an earlier one."""
        # The envelope's type decides, even if the header differs.
        if self._keep is not None and not self._keep.keeps_name(event.event_type):
            return True
        if not self._takes_erased and type(event) is EventEnvelope and is_erased(event):
            return True
        if self._journal or not first:
            return False
        return self._repeats.is_repeat(identity_of(event, record), record.offset)

    def _advance(self, key: str, event: Any, record: Record) -> None:
        if self._misplaced is not None and key != record.key:
            raise self._misplaced(record, key)
        states = self._states
        state = states.get(key, _MISSING)
        if state is _MISSING:
            state, size = self._changed.load(key)
            self._room -= size
        if state is None:
            state = self.projection.initial_state()
        states[key] = new = self._apply(state, event)
        record.release()
        if self._forgets and type(new) is int and -_WHOLE <= new < _WHOLE:
            if key not in self._since:
                self._room -= _NUMBER_BYTES
            self._since[key] = _FORGOTTEN
            self._room += _EVENT_BYTES + len(record.value)
            return
        since = self._since.get(key)
        if since:
            since.append(record)
        else:
            if since is not None:
                self._changed.base[key] = self._codec.encode(state)
            self._since[key] = [record]

    def _advance_all(self, keys: Sequence[str], event: Any, record: Record) -> None:
        """Fold an event into all of its rows, or into none."""
        done: list[str] = []
        try:
            for key in keys:
                done.append(key)
                self._advance(key, event, record)
        except Exception:
            with self._or_abandoned():
                for key in done:
                    self._changed.take_back(key, record)
            raise

    def _refuse(self, record: Record, key: str | None, error: Exception, *, stop: bool = True) -> bytes:
        if key is not None:
            try:
                key.encode()
            except UnicodeEncodeError:
                key = None
            else:
                with self._or_abandoned():
                    self._changed.restore(key)
        if stop and self.projection.on_error == "stop":
            raise stopped_by(self.projection.name, record, error) from error
        return self._held.add(record, key, error)

    def _encoded(self, key: str) -> bytes | None:
        """The encoded state of a changed row; events whose state cannot be stored become letters."""
        try:
            state = self._states[key]
            return None if state is None else self._codec.encode(state)
        except StateNotStoredError:
            with self._or_abandoned():
                data, unstored = self._changed.as_far_as_possible(key)
        if unstored is not None:
            try:
                self._refuse(unstored.record, key, unstored.error)
            except EventHeldError:
                self._abandon()  # nothing after this event may be written
                raise
            for later in unstored.later:
                self._held.add(later, key, None)
        return data

    @contextmanager
    def _or_abandoned(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._abandon()  # a row is half changed
            raise

    def _abandon(self) -> None:
        """Go back to what is in the file after user code was interrupted."""
        self.manifest = self.file.manifest
        self._pending.rows.clear()
        self._changed.forget()
        self._taken, self._room = 0, UNFLUSHED_BYTES
        self._moved, self._last = False, None
        self._numbers.forget()
        self._repeats.forget()
        self._held.forget()
