"""Dead letters of a fold, and the keys whose later events they hold back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge as in_order
from itertools import chain
from operator import itemgetter
from typing import Final

from noesium_stream.log.record import Record
from noesium_stream.projection.fold.dead_letters import (
    HELD,
    LETTER,
    Letter,
    letter_key,
    letter_of,
    letters_of,
    read_letter,
    write_letter,
)
from noesium_stream.projection.fold.pending_rows import PendingRows

_REMEMBERED: Final = 10_000


class HeldLetters:
    """The letters in the pending rows and in the file. Its memory is bounded.

    Attributes:
        letters: the number of letters.
        keys: the number of held-back keys.
    """

    def __init__(self, pending: PendingRows) -> None:
        self._pending = pending
        self._known: dict[str, bool] = {}
        self.letters = self.keys = 0
        self.forget()

    def forget(self) -> None:
        """Go back to what is in the file."""
        manifest = self._pending.file.manifest
        self.letters, self.keys = manifest.held, manifest.blocked
        self._known.clear()

    def holds(self, key: str) -> bool:
        """Whether this key's events are held back. Raises `StateFileError`."""
        if not self.keys:
            return False
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[key] = self._pending.get(HELD + key.encode()) is not None
        return known

    def add(self, record: Record, key: str | None, error: BaseException | None) -> bytes:
        """Store a record as a letter that holds back the later events of `key`; return the letter's row.

        Without an error the record waits behind another letter.
        """
        row = letter_key(key, record.offset)
        self._pending.rows[row] = write_letter(letter_of(record, key, error))
        self.letters += 1
        if key is not None and not self.holds(key):
            self._known[key] = True
            self.keys += 1
            self._pending.rows[HELD + key.encode()] = b""
        return row

    def remove(self, letter: Letter, *, kept: bytes | None) -> None:
        """Remove a retried letter; `kept` is the row of the letter that it became again, if any."""
        row = letter_key(letter.key, letter.offset)
        self.letters -= 1
        if row != kept:
            self._pending.rows[row] = None

    def release(self, key: str) -> None:
        """Stop holding back a key's events."""
        self._known[key] = False
        self.keys -= 1
        self._pending.rows[HELD + key.encode()] = None

    def redrive(
        self,
        keys: Iterable[str | None] | None,
        attempt: Callable[[Letter], bytes | None],
        settle: Callable[[], None],
    ) -> int:
        """Retry all letters, each key's until one fails; release the keys without remaining letters.

        Args:
            keys: the keys to retry; None retries all letters.
            attempt: folds a letter's event; returns the row of the letter if it became one again.
            settle: called after each letter; may flush.

        Returns:
            The number of letters before.
        """
        return sum(
            self._redrive_key(key, attempt, settle) for key in (self._all_keys() if keys is None else keys)
        )

    def _redrive_key(
        self, key: str | None, attempt: Callable[[Letter], bytes | None], settle: Callable[[], None]
    ) -> int:
        found, failed = 0, False
        for letter in self._of(key):
            found += 1
            if failed:
                continue
            kept = attempt(letter)
            self.remove(letter, kept=kept)
            before = self.letters
            settle()
            failed = key is not None and kept == letter_key(key, letter.offset)
            if (
                self.letters > before
            ):  # the flush found a state, of this key or another, that cannot be stored
                first = next(self._of(key), None)
                failed = failed or (first is not None and first.offset <= letter.offset)
        if key is not None and not failed and self.holds(key):
            self.release(key)
        return found

    def _all_keys(self) -> Iterator[str | None]:
        """Each held-back key, and None for letters without a key."""
        rows = (key[len(HELD) :].decode() for key, _ in self._pending.file.scan(HELD))
        return chain((None,), rows)

    def _of(self, key: str | None) -> Iterator[Letter]:
        """The letters of a key by offset, including letters that moved from another key."""
        prefix = letters_of(key)
        changed = {row: value for row, value in self._pending.rows.items() if row.startswith(prefix)}
        written = (item for item in self._pending.file.scan(prefix) if item[0] not in changed)
        for _, value in in_order(written, sorted(changed.items()), key=itemgetter(0)):
            if value is not None:
                yield read_letter(value)

    def all(self) -> Iterator[Letter]:
        """All written letters, by key and offset."""
        for _, row in self._pending.file.scan(LETTER):
            yield read_letter(row)
