"""Repeated events: a program that does not know whether its event was appended appends it again.

An event is a repetition if the same partition has an event of the same id, from a producer of the same agent
id, at most `WINDOW` offsets before it. A handler does not handle it, and a projection does not fold it: a
pure function of the partition, so that every process decides the same.

The producer belongs to the identity: else anyone could take an event away from others by using its id first.
Journals are not looked at: their records are numbered, and written by their fenced owner alone.

A projection keeps the window in its state file, written with the rows and the cursor: the log before the
cursor may be gone, and a state is folded on from many places (a snapshot, a push, a past position).
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import orjson

from noesium_stream.errors import StateFileError, brief
from noesium_stream.event.codec.codec import peek_identity
from noesium_stream.log.headers import CE_SOURCE, header_value
from noesium_stream.log.record import Record
from noesium_stream.projection.event_headers import EventHeaders
from noesium_stream.projection.fold.pending_rows import PendingRows

WINDOW: Final = 4_000
"""Largest distance, in offsets, at which a repetition is dropped.

So many ids take about a megabyte for each partition."""

SEEN: Final = b"w"
"""First byte of the keys of rows that hold the identities of the last events."""

_BLOCK: Final = 250
"""Offsets of one such row: what one flush of few events writes."""
_BLOCKS: Final = WINDOW // _BLOCK + 1
_LONGEST: Final = 128
"""Longest identity that is stored as it is; an event id has 36 characters."""


class Repeats:
    """The identities of a partition's last events: those of the last `WINDOW` offsets, and some before them.

    Two tables take turns, so that old ids are dropped without a search. An identity is one string, because
    tuples would cost the garbage collector as much as all the rest.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._older: dict[str, int] = {}
        self._full_at = 0

    def is_repeat(self, identity: str, offset: int) -> bool:
        """Whether an event repeats an earlier one; call it for each event, in the order of offsets."""
        last = self._seen.get(identity) or self._older.get(identity)
        self._seen[identity] = offset + 1
        if offset >= self._full_at:
            self._seen, self._older, self._full_at = {}, self._seen, offset + WINDOW
        return last is not None and last <= offset < last + WINDOW

    def __len__(self) -> int:
        return len(self._seen) + len(self._older)


class StoredRepeats:
    """The same for a projection, kept in its state file.

    Args:
        pending: where the identities are stored.
    """

    def __init__(self, pending: PendingRows) -> None:
        self._pending = pending
        self._repeats: Repeats | None = None
        self._blocks: dict[int, tuple[list[int], list[str]]] = {}
        """Offsets and identities by block: the one that is filled now, and those that are not written yet."""
        self._written = -1
        """The last block that is in the file as it is here."""
        self._filled = -1
        """The block that the next identity goes to, unless its offset belongs to another one."""
        self._block: tuple[list[int], list[str]] = [], []

    def is_repeat(self, identity: str, offset: int) -> bool:
        """Whether an event repeats an earlier one; raises `StateFileError` if the stored ones are damaged."""
        if offset // _BLOCK != self._filled or self._repeats is None:
            repeats = self._fill(offset // _BLOCK)
        else:
            repeats = self._repeats
        offsets, identities = self._block
        offsets.append(offset)
        identities.append(identity)
        return repeats.is_repeat(identity, offset)

    def _fill(self, number: int) -> Repeats:
        """Let a block be the one that is filled; it is not in the file as it is here any more."""
        if self._repeats is None:
            self._repeats = self._stored()
        self._block = self._blocks.setdefault(number, ([], []))
        self._filled = number
        if number == self._written:
            self._written = -1
        return self._repeats

    def settle(self) -> None:
        """Add the changed blocks to the pending rows."""
        for number in sorted(self._blocks)[-_BLOCKS:]:
            if number == self._written:
                continue
            self._pending.rows[_key(number)] = orjson.dumps([number, *self._blocks[number]])

    def written(self) -> None:
        """Note that the pending rows are in the file."""
        if self._blocks:
            self._written = max(self._blocks)
            self._blocks = {self._written: self._blocks[self._written]}
        self._filled = -1

    def forget(self) -> None:
        """Go back to what is in the file."""
        self._repeats, self._written, self._filled = None, -1, -1
        self._blocks.clear()

    def _stored(self) -> Repeats:
        repeats, file = Repeats(), self._pending.file
        try:
            for number, offsets, identities in sorted(orjson.loads(data) for _, data in file.scan(SEEN)):
                for offset, identity in zip(offsets, identities, strict=True):
                    repeats.is_repeat(identity, offset)
                self._blocks = {number: (offsets, identities)}
                self._written = number
        except (ValueError, TypeError) as error:
            self.forget()
            raise StateFileError(
                f"{file.path}: the ids of its last events cannot be read: {brief(error, 200)}."
            ) from None
        return repeats


def identity_of(event: Any, record: Record) -> str:
    """What tells a repeated event: its id, and its producer's agent id.

    An event that is seen through its headers is looked at in its bytes, which is faster; in another
    format than this version's own its headers tell: id and source.

    Raises:
        CorruptRecordError: it has no id.
    """
    if isinstance(event, EventHeaders):
        told = peek_identity(record.value)
        if told is None:
            source = header_value(record.headers, CE_SOURCE) or b""
            told = event.event_id + source.decode("latin-1")
    else:
        told = event.event_id + event.producer.agent_id
    return told if len(told) <= _LONGEST else sha256(told.encode()).hexdigest()


def _key(block: int) -> bytes:
    return SEEN + b"%d" % (block % _BLOCKS)
