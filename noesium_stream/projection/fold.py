"""One projection folding one partition into its state file.

A record is folded once: the file's cursor says which are, and rows and cursor are written together. What was
read since the last `flush` lives in memory; whoever dies before it folds the same records again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from noesium_stream.errors import (
    CorruptRecordError,
    EventHeldError,
    ProjectionError,
    SequenceGapError,
    brief,
)
from noesium_stream.log.headers import CE_TYPE, ORIGIN, SEQUENCE, TypeFilter
from noesium_stream.log.record import Decoder, Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.headers import EventHeaders, event_id_of
from noesium_stream.projection.letters import (
    HELD,
    LETTER,
    Letter,
    letter_key,
    letter_of,
    letters_of,
    read_letter,
    write_letter,
)
from noesium_stream.projection.snapshots import Snapshots
from noesium_stream.projection.state_codec import StateCodec
from noesium_stream.projection.state_file import Manifest, StateFile

TState = TypeVar("TState")

_STATE: Final = b"s"
_NEXT: Final = b"q"
DIRTY_ROWS: Final = 4_000
"""Changed rows that are kept in memory at most."""
CACHED_ROWS: Final = 10_000
UNFLUSHED: Final = 5_000
"""Folded events that are not written yet, at most."""
_MISSING: Final[Any] = object()


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
        self.projection = projection
        self.file = file
        self._codec = codec
        self._journal = journal
        self._snapshots = snapshots
        self._apply = _through(call, projection.apply)
        self._key = _through(call, projection.key)
        types = projection.event_types
        self._keep = None if types is None else TypeFilter(types)
        self._changes: dict[bytes, bytes | None] = {}
        self._states: dict[str, TState | None] = {}
        self._dirty: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._new_numbers: set[str] = set()
        self._held = {_text(key[1:]) for key, _ in file.scan(HELD)}
        self._since: dict[str, list[Record]] = {}
        self._taken = 0
        self._moved = False
        self._last: Record | None = None
        self.manifest: Manifest = file.manifest

    @property
    def cursor(self) -> int:
        """The next offset to fold."""
        return self.manifest.cursor if self._last is None else self._last.offset + 1

    def take(self, records: Sequence[Record]) -> None:
        """Fold the next records; those below the cursor were folded before.

        Raises:
            EventHeldError: with `on_error = "stop"`: an event cannot be taken; what came before it is kept.
            SequenceGapError: the journal lacks a record of a run.
            StateFileError: the file is damaged: discard it.
            ProjectionError: a state cannot be stored.
        """
        cursor, keep, journal = self.cursor, self._keep, self._journal
        for record in records:
            if record.offset < cursor:
                continue
            if not journal or self._is_next(record):
                event_type = record.header(CE_TYPE)
                if keep is None or event_type is None or keep.keeps(event_type):
                    self._fold(record, judge=event_type is None)
                    self._taken += 1
            self._last = record
        if self._taken >= UNFLUSHED or len(self._dirty) >= DIRTY_ROWS or len(self._changes) >= DIRTY_ROWS:
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
            StateFileError, ProjectionError: as `StateFile.commit`.
        """
        self._settle()
        if not (self._moved or self._changes or self._dirty):
            return
        for key in self._dirty:
            state = self._states[key]
            self._changes[_STATE + _bytes(key)] = None if state is None else self._codec.encode(state)
        for run in self._new_numbers:
            self._changes[_NEXT + run.encode()] = b"%d" % self._numbers[run]
        self.manifest = replace(self.manifest, commits=self.file.manifest.commits)
        self.file.commit(self._changes, self.manifest)
        self.manifest = self.file.manifest
        self._changes, self._dirty, self._since, self._new_numbers = {}, set(), {}, set()
        self._taken, self._moved = 0, False
        if len(self._states) > CACHED_ROWS:
            self._states.clear()
        if len(self._numbers) > CACHED_ROWS:
            self._numbers.clear()
        if self._snapshots is not None:
            self._snapshots.after_flush(self.manifest)

    def state(self, key: str) -> TState | None:
        """The state of a row, with what is not flushed yet; None if there is none.

        Raises `StateFileError`.
        """
        found = self._states.get(key, _MISSING)
        if found is not _MISSING:
            return found
        data = self._stored(_STATE + _bytes(key))
        return None if data is None else self._codec.decode(data)

    def rows(self, prefix: str = "") -> Iterator[tuple[str, TState]]:
        """Rows whose keys begin with `prefix`, in the order of their UTF-8 bytes, as of the last flush."""
        for key, data in self.file.scan(_STATE + _bytes(prefix)):
            yield _text(key[1:]), self._codec.decode(data)

    def letters(self) -> Iterator[Letter]:
        """Its dead letters, in the order of offsets within a key, as of the last flush."""
        for _, row in self.file.scan(LETTER):
            yield read_letter(row)

    def redrive(self, decoder: Decoder, keys: Collection[str | None] | None = None) -> tuple[int, int]:
        """Fold the letters again, in order; flush. Those that fail again stay, with what they hold back.

        Args:
            decoder: of the log.
            keys: whose letters; None redrives all.

        Returns:
            How many were folded, how many stay.
        """
        self.flush()
        done = stayed = 0
        found = {letter.key for letter in self.letters()} if keys is None else set(keys)
        for key in sorted(found, key=lambda name: (name is not None, name or "")):
            folded, failed = self._redrive_key(decoder, key)
            self._moved = True
            self.flush()
            done, stayed = done + folded, stayed + failed
        return done, stayed

    def _redrive_key(self, decoder: Decoder, key: str | None) -> tuple[int, int]:
        at = self.file.manifest.identity
        letters = [read_letter(row) for _, row in self.file.scan(letters_of(key))]
        if key is not None:
            self._held.discard(key)
            self._changes[HELD + _bytes(key)] = None
        for index, letter in enumerate(letters):
            self._changes[letter_key(key, letter.offset)] = None
            self.manifest = replace(self.manifest, held=self.manifest.held - 1)
            record = letter.record(at.topic, at.partition, decoder)
            self._fold(record, stop=False)
            if key is not None and key in self._held:
                return index, len(letters) - index
        failed = sum(self._changes[letter_key(key, letter.offset)] is not None for letter in letters)
        return len(letters) - failed, failed

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
        run, found = record.key, int(number)
        expected = self._numbers.get(run)
        if expected is None:
            stored = self._stored(_NEXT + run.encode())
            expected = 0 if stored is None else int(stored)
        if found < expected:
            return False
        if found > expected:
            raise SequenceGapError(
                f"The journal lacks records {expected} to {found - 1} of the run {run}: "
                f"{record.topic}/{record.partition}@{record.offset} has the number {found}.",
                hint="Nothing after it was folded. Was the topic truncated or copied?",
            )
        self._numbers[run] = found + 1
        self._new_numbers.add(run)
        return record.header(ORIGIN) is None

    def _fold(self, record: Record, *, judge: bool = False, stop: bool = True) -> None:
        key = None
        try:
            event: Any = record.envelope if self.projection.decodes else EventHeaders(record)
            if judge and self._keep is not None and not self._keep.keeps_name(event.event_type):
                return
            key = self._key(event)
            if key is None:
                return
            if key in self._held:
                self._hold(record, key, None)
                return
            self._advance(key, event, record)
        except ProjectionError:
            raise
        except CorruptRecordError as error:
            key = self._key_of_unknown(record)
            self._refuse(record, key, error, stop=stop and self.projection.on_error == "stop")
        except Exception as error:
            self._refuse(record, key, error, stop=stop and self.projection.on_error == "stop")

    def _key_of_unknown(self, record: Record) -> str | None:
        """The key of an event that is not valid, or not known here, if that much can be told."""
        try:
            key: str | None = self._key(record.unchecked)
        except Exception:  # whatever is wrong with it: it is a letter without a key
            return None
        return key

    def _advance(self, key: str, event: Any, record: Record) -> None:
        states = self._states
        state = states.get(key, _MISSING)
        if state is _MISSING:
            state = self.state(key)
        if state is None:
            state = self.projection.initial_state()
        states[key] = self._apply(state, event)
        self._dirty.add(key)
        if self.projection.in_place:
            self._since.setdefault(key, []).append(record)

    def _refuse(self, record: Record, key: str | None, error: Exception, *, stop: bool) -> None:
        if key is not None and self.projection.in_place:
            self._restore(key)
        if stop:
            raise EventHeldError(
                f"The projection {self.projection.name} cannot take the event at "
                f"{record.topic}/{record.partition}@{record.offset} ({_type(record)}): "
                f"{type(error).__name__}: {brief(error, 500)}",
                hint="Mend `apply` and start it again, or let it hold such events back (--on-error hold).",
            ) from error
        self._hold(record, key, error)

    def _restore(self, key: str) -> None:
        """Undo what a failed `apply` did to a state that it changes in place: fold again since the flush."""
        data = self.file.get(_STATE + _bytes(key))
        state = self.projection.initial_state() if data is None else self._codec.decode(data)
        found: TState | None = state
        for record in self._since.get(key, ()):
            event: Any = record.envelope if self.projection.decodes else EventHeaders(record)
            found = self._apply(self.projection.initial_state() if found is None else found, event)
        if data is None and not self._since.get(key):
            self._states.pop(key, None)
            self._dirty.discard(key)
        else:
            self._states[key] = found

    def _hold(self, record: Record, key: str | None, error: Exception | None) -> None:
        self._changes[letter_key(key, record.offset)] = write_letter(letter_of(record, key, error))
        self.manifest = replace(self.manifest, held=self.manifest.held + 1)
        if key is not None and key not in self._held:
            self._held.add(key)
            self._changes[HELD + _bytes(key)] = b""

    def _stored(self, key: bytes) -> bytes | None:
        if key in self._changes:
            return self._changes[key]
        return self.file.get(key)


def _through(call: Callable[..., Any] | None, function: Callable[..., Any]) -> Callable[..., Any]:
    if call is None:
        return function

    def guarded(*args: Any) -> Any:
        return call(function, *args)

    return guarded


def _type(record: Record) -> str:
    return _text(record.header(CE_TYPE) or b"unknown type")


def _id(record: Record) -> str | None:
    try:
        return event_id_of(record)
    except CorruptRecordError:
        return None


def _text(value: bytes) -> str:
    return value.decode(errors="surrogatepass")


def _bytes(key: str) -> bytes:
    return key.encode(errors="surrogatepass")
