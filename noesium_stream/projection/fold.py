"""One projection folding one partition into its state file.

A record is folded once: the file's cursor says which are, and rows and cursor are written together. What was
read since the last `flush` lives in memory; whoever dies before it folds the same records again.

An event that `apply` cannot take leaves no trace in its row: whatever `apply` did to the state that it was
given, the row is made again from the file and from the records since the last flush. The same is done where a
state turns out at the flush to be none that can be stored: the event that made it becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from noesium_stream.errors import (
    CorruptRecordError,
    EventHeldError,
    EventStoreError,
    EventValidationError,
    ImpureProjectionError,
    NoesiumError,
    ProjectionError,
    StateNotStoredError,
    brief,
)
from noesium_stream.log.headers import CE_TYPE, ORIGIN, SEQUENCE, TypeFilter
from noesium_stream.log.record import Decoder, Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.folding import FOLDING
from noesium_stream.projection.headers import EventHeaders, event_id_of
from noesium_stream.projection.held import HeldBack
from noesium_stream.projection.letters import Letter, letter_key
from noesium_stream.projection.manifest import Manifest
from noesium_stream.projection.pending import Pending, RunNumbers
from noesium_stream.projection.snapshots import Snapshots
from noesium_stream.projection.state_codec import StateCodec
from noesium_stream.projection.state_file import StateFile

TState = TypeVar("TState")

_STATE: Final = b"s"
UNFLUSHED: Final = 5_000
"""Folded events that are not written yet, at most."""
UNFLUSHED_BYTES: Final = 16_000_000
"""What they, and the states that they have changed, may take as stored, about."""
CACHED_ROWS: Final = 2_000
_EVENT_BYTES: Final = UNFLUSHED_BYTES // UNFLUSHED
_NUMBER_BYTES: Final = 2_000
_MISSING: Final[Any] = object()
_WHOLE: Final = 1 << 63
_FORGOTTEN: Final[list[Record]] = []
"""Shared, and always empty: the row has changed, and its state is its own base."""
_UNCHANGEABLE: Final = frozenset({int, str, bool, float, type(None)})


class PartitionFold(Generic[TState]):
    """Folds records into a state file; not safe for use by several threads at once.

    Args:
        projection: what to fold.
        codec: of its states.
        file: open to be written.
        journal: whether the partition is a journal's: its records are numbered per run, and copies of what a
            run received from other runs are passed over.
        call: how `key` and `apply` are called; a guard may stand in between.
        snapshots: told of each flush; None keeps no copies.
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
    ) -> None:
        projection.check()
        self.projection = projection
        self.file = file
        self.manifest: Manifest = file.manifest
        self._codec = codec
        self._journal = journal
        self._snapshots = snapshots
        self._apply = _through(call, projection.apply)
        self._key = _through(call, projection.key)
        self._keys = _through(call, projection.keys) if projection.spreads() else None
        self._copies = projection.copies
        types = projection.event_types
        self._keep = None if types is None else TypeFilter(types)
        self._pending = Pending(file)
        self._numbers = RunNumbers(self._pending)
        self._held = HeldBack(self._pending)
        self._states: dict[str, TState | None] = {}
        self._states_bytes = 0
        self._since: dict[str, list[Record]] = {}
        """The events since the last flush, or since `_base`, by the rows that they have changed."""
        self._base: dict[str, bytes] = {}
        # A whole number is as it was whatever `apply` does, and can be stored: what made it may be forgotten.
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
        """What takes memory until the next flush, about."""
        return UNFLUSHED_BYTES - self._room

    def take(self, records: Sequence[Record]) -> None:
        """Fold the next records; those below the cursor were folded before.

        Raises:
            EventHeldError: with `on_error = "stop"`: an event cannot be taken; what came before it is kept.
            SequenceGapError: the journal lacks a record of a run.
            ImpureProjectionError: what `call` found.
            StateFileError: the file is damaged: discard it.
            ProjectionError: `key` returned no text, or the file cannot be written.
            LogUnavailableError: what it takes to decode a record cannot be asked for now.
        """
        with FOLDING:
            self._take(records)

    def _take(self, records: Sequence[Record]) -> None:
        cursor, keep, journal = self.cursor, self._keep, self._journal
        for record in records:
            if record.offset < cursor:
                continue
            if not journal or self._is_next(record):
                event_type = None if keep is None else record.header(CE_TYPE)
                if keep is None or event_type is None or keep.keeps(event_type):
                    try:
                        self._fold(record)
                    except EventHeldError:
                        if journal and record.header(SEQUENCE) is not None:
                            self._numbers.give_back(record)  # or it would be a repeat, once it can be taken
                        raise
                    self._taken += 1
                    self._room -= _EVENT_BYTES + len(record.value)
            self._last = record
            if self._room <= 0:
                self.flush()

    def advance(self, cursor: int) -> None:
        """Note that there is nothing to fold before `cursor`: the log's reader has passed over it."""
        if cursor > self.cursor:
            self._settle()
            self.manifest = replace(self.manifest, cursor=cursor)
            self._moved = True

    def flush(self) -> None:
        """Write what has changed, with the cursor.

        Raises:
            EventHeldError: with `on_error = "stop"`: an event made a state that cannot be stored.
            StateFileError, ProjectionError: as `StateFile.commit`.
        """
        self._settle()
        rows = self._pending.rows
        if not (self._moved or rows or self._since):
            return
        for key in list(self._since):
            data = self._encoded(key)
            rows[_STATE + key.encode()] = data
            self._states_bytes += len(data or b"")
        self._numbers.settle()
        held = self._held
        self.manifest = replace(self.manifest, held=held.letters, blocked=held.keys)
        self.file.commit(rows, self.manifest)
        self.manifest = self.file.manifest
        rows.clear()
        self._since.clear()
        self._base.clear()
        self._numbers.written()
        self._moved, self._room = False, UNFLUSHED_BYTES
        if len(self._states) > CACHED_ROWS or self._states_bytes > UNFLUSHED_BYTES:
            self._states.clear()
            self._states_bytes = 0
        if self._snapshots is not None:
            self._snapshots.after_flush(self.manifest)

    def state(self, key: str) -> TState | None:
        """The state of a row, with what is not flushed yet; None if there is none.

        Raises `StateFileError`.
        """
        found = self._states.get(key, _MISSING)
        if type(found) in _UNCHANGEABLE:
            return found
        if found is _MISSING:
            data = self._pending.get(_STATE + key.encode(errors="surrogatepass"))
        else:
            data = self._encoded(key)  # what the caller does to it must not reach the fold
        return None if data is None else self._codec.decode(data)

    def rows(self, prefix: str = "") -> Iterator[tuple[str, TState]]:
        """Rows whose keys begin with `prefix`, in the order of their UTF-8 bytes, as of the last flush."""
        for key, data in self.file.scan(_STATE + prefix.encode()):
            yield key[len(_STATE) :].decode(), self._codec.decode(data)

    def letters(self) -> Iterator[Letter]:
        """Its dead letters, in the order of offsets within a key, as of the last flush."""
        return self._held.all()

    def redrive(self, decoder: Decoder, keys: Collection[str | None] | None = None) -> tuple[int, int]:
        """Fold the letters again, in order; flush. Those that fail again stay, with what they hold back.

        Args:
            decoder: of the log.
            keys: whose letters; None redrives all.

        Returns:
            How many were folded, how many stay.
        """
        self.flush()
        before = self._held.letters
        tried = 0
        with FOLDING:
            for key in self._held.held_keys() if keys is None else keys:
                tried += self._redrive_key(decoder, key)
        self.flush()
        folded = before - self._held.letters
        return folded, tried - folded

    def _redrive_key(self, decoder: Decoder, key: str | None) -> int:
        """Fold the letters of a key until one fails; return how many there were."""
        at, held = self.file.manifest.identity, self._held
        found, failed = 0, False
        for letter in held.of(key):
            found += 1
            if failed:
                continue
            record = letter.record(at.topic, at.partition, decoder)
            kept = self._fold(record, stop=False, released=key)
            held.remove(letter, kept=kept)
            failed = key is not None and kept == letter_key(key, letter.offset)
            self._room -= _EVENT_BYTES + len(record.value)
            if self._room <= 0:
                before = held.letters
                self.flush()
                failed = failed or held.letters > before
        if key is not None and found and not failed:
            held.release(key)
        return found

    def _settle(self) -> None:
        """Move the manifest on to the last record that was taken."""
        last = self._last
        if last is not None:
            self.manifest = replace(
                self.manifest,
                cursor=last.offset + 1,
                last_event_id=_id(last),
                last_ms=last.timestamp_ms,
                events=self.manifest.events + self._taken,
            )
            self._last, self._taken, self._moved = None, 0, True

    def _is_next(self, record: Record) -> bool:
        """Whether this record of a journal is to be folded: not a repeat, not a copy of another journal's."""
        number = record.header(SEQUENCE)
        if number is None:
            return True
        if not (number.isdigit() and len(number) < 19):
            reason = EventValidationError(SEQUENCE, "is no number")
            self._refuse(
                record, None, CorruptRecordError(record.topic, record.partition, record.offset, reason)
            )
            return False
        return self._numbers.take(record, int(number)) and (self._copies or record.header(ORIGIN) is None)

    def _fold(self, record: Record, *, stop: bool = True, released: str | None = None) -> bytes | None:
        """Fold one record; return the row of the letter that it became, if it did."""
        key: str | None = None
        try:
            event: Any = record.newest if self.projection.decodes else EventHeaders(record)
            # What the envelope says counts, whatever the header said.
            if self._keep is not None and not self._keep.keeps_name(event.event_type):
                return None
            if self._keys is not None:
                self._advance_all(self._keys(event), event, record)
                return None
            key = self._key(event)
            if key is None:
                return None
            if key != released and self._held.holds(key):
                return self._held.add(record, key, None)
            self._advance(key, event, record)
        except CorruptRecordError as error:
            key = self._key_of_unknown(record) if key is None else key
            return self._refuse(record, key, error, stop=stop)
        except Exception as error:
            if _is_no_fault_of_the_event(error):
                self._abandon()
                if isinstance(error, ImpureProjectionError):
                    raise _located(error, record) from error
                raise
            return self._refuse(record, key, error, stop=stop)
        except BaseException:
            self._abandon()
            raise
        return None

    def _advance(self, key: str, event: Any, record: Record) -> None:
        states = self._states
        state = states.get(key, _MISSING)
        if state is _MISSING:
            state = self._loaded(key)
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
                self._base[key] = self._codec.encode(state)
            self._since[key] = [record]

    def _advance_all(self, keys: Sequence[str], event: Any, record: Record) -> None:
        """Fold an event into all of its rows, or into none."""
        done: list[str] = []
        try:
            for key in keys:
                done.append(key)
                self._advance(key, event, record)
        except Exception:
            for key in done:
                since = self._since.get(key, [])
                if since and since[-1] is record:
                    since.pop()
                self._states.pop(key, None)
                if since:
                    self._states[key] = self._again(self.file.get(_STATE + key.encode()), since)
                else:
                    self._since.pop(key, None)
            raise

    def _loaded(self, key: str) -> TState | None:
        if not isinstance(key, str):
            raise ProjectionError(
                f"`key` of the projection {self.projection.name} returned {type(key).__name__}, not text.",
                hint="Return a text, or None for events that belong to no row.",
            )
        data = self._pending.get(_STATE + key.encode())
        if data is None:
            return None
        self._room -= len(data)
        self._states_bytes += len(data)
        return self._codec.decode(data)

    def _key_of_unknown(self, record: Record) -> str | None:
        """The key of an event that is not valid, or not known here, if that much can be told."""
        try:
            known: Any = record.unchecked if self.projection.decodes else EventHeaders(record)
            key: str | None = self._key(known)
            if key is not None:
                key.encode()
        except Exception:  # whatever is wrong with it: it is a letter without a key
            return None
        return key

    def _refuse(self, record: Record, key: str | None, error: Exception, *, stop: bool = True) -> bytes:
        if key is not None:
            try:
                key.encode()
            except UnicodeEncodeError:
                key = None
            else:
                self._restore(key)
        if stop and self.projection.on_error == "stop":
            raise EventHeldError(
                f"The projection {self.projection.name} cannot take the event at {_place(record)}: "
                f"{type(error).__name__}: {brief(error, 500)}",
                hint="Mend `apply` and start it again, or let it hold such events back (--on-error hold).",
            ) from error
        return self._held.add(record, key, error)

    def _restore(self, key: str) -> None:
        """Undo what a failed `apply` may have done to the state that it was given: make it again."""
        if type(self._states.get(key)) in _UNCHANGEABLE:
            return
        self._states.pop(key, None)
        if key in self._since:
            self._states[key] = self._again(self._based(key), self._since[key])

    def _based(self, key: str) -> bytes | None:
        """What a row was before the events in `_since`."""
        return self._base.get(key) or self.file.get(_STATE + key.encode())

    def _again(self, data: bytes | None, records: Sequence[Record]) -> TState | None:
        """The state of a row after these records, on top of a stored one."""
        try:
            return self._folded_again(data, records)
        except BaseException:
            self._abandon()  # the row is half made
            raise

    def _folded_again(self, data: bytes | None, records: Sequence[Record]) -> TState | None:
        state = None if data is None else self._codec.decode(data)
        for record in records:
            event: Any = record.newest if self.projection.decodes else EventHeaders(record)
            try:
                state = self._apply(self.projection.initial_state() if state is None else state, event)
            except Exception as error:
                raise ImpureProjectionError(
                    f"The projection {self.projection.name} took the event at {_place(record)} once and "
                    f"failed the second time: {type(error).__name__}: {brief(error, 300)}"
                ) from error
            record.release()
        return state

    def _encoded(self, key: str) -> bytes | None:
        """The bytes of a changed row; events whose state cannot be stored become letters."""
        try:
            state = self._states[key]
            return None if state is None else self._codec.encode(state)
        except StateNotStoredError:
            return self._encoded_as_far_as_possible(key)

    def _encoded_as_far_as_possible(self, key: str) -> bytes | None:
        records = self._since[key]
        data = self._based(key)
        for index, record in enumerate(records):
            try:
                state = self._again(data, [record])
                data = None if state is None else self._codec.encode(state)
            except StateNotStoredError as error:
                self._since[key] = records[:index]
                self._states[key] = None if data is None else self._codec.decode(data)
                try:
                    self._refuse(record, key, error)
                except EventHeldError:
                    self._abandon()  # nothing may be written that lies behind the event
                    raise
                for later in records[index + 1 :]:
                    self._held.add(later, key, None)
                break
        return data

    def _abandon(self) -> None:
        """Go back to what is in the file: a call of the user's code was cut off."""
        self.manifest = self.file.manifest
        self._pending.rows.clear()
        self._states.clear()
        self._since.clear()
        self._base.clear()
        self._states_bytes, self._taken, self._room = 0, 0, UNFLUSHED_BYTES
        self._moved, self._last = False, None
        self._numbers.forget()
        self._held.forget()


def _through(call: Callable[..., Any] | None, function: Callable[..., Any]) -> Callable[..., Any]:
    if call is None:
        return function

    def guarded(*args: Any) -> Any:
        return call(function, *args)

    return guarded


def _is_no_fault_of_the_event(error: Exception) -> bool:
    """A damaged file, an impure projection, no memory, no registry: another time the event may be taken."""
    retriable = isinstance(error, NoesiumError) and error.retriable
    stored = isinstance(error, ProjectionError) and not isinstance(error, StateNotStoredError)
    return retriable or stored or isinstance(error, MemoryError)


def _located(error: ImpureProjectionError, record: Record) -> ImpureProjectionError:
    return ImpureProjectionError(
        f"{record.topic}/{record.partition}@{record.offset}: {error.message}", hint=error.hint
    )


def _place(record: Record) -> str:
    event_type = (record.header(CE_TYPE) or b"unknown type").decode(errors="replace")
    return f"{record.topic}/{record.partition}@{record.offset} ({event_type})"


def _id(record: Record) -> str | None:
    try:
        return event_id_of(record)
    except EventStoreError:
        return None
