"""Keys of data subjects: one secret for each person, kept outside the log, and destroyed to erase the person.

`SubjectKeys` is the interface that a key management service takes the place of; `key_folder.py` keeps keys in
files, `KeyRing` in this process, for a log in memory.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from noesium_stream.errors import EventValidationError, SubjectKeyError

SECRET_BYTES: Final = 32
MAX_SUBJECT: Final = 200
"""Characters of a subject."""
KEY_ID: Final = re.compile(r"[0-9a-f]{24}-[1-9][0-9]{0,5}")

_SUBJECT: Final = re.compile(r"[a-z][a-z0-9_-]{0,40}:[^\x00-\x1f\x7f]{1,160}")


class SubjectKey(NamedTuple):
    """The key of a data subject; `secret` has 32 bytes."""

    key_id: str
    subject: str
    secret: bytes

    def __repr__(self) -> str:
        return f"<key {self.key_id} of {self.subject}>"


class DestroyedKey(NamedTuple):
    """A key that was destroyed; `at_ms` is milliseconds since the epoch."""

    key_id: str
    subject: str
    at_ms: int


class SubjectKeys(Protocol):
    """Where the keys of data subjects are. All methods may be called from any thread, and raise
    `SubjectKeyError` where the store cannot be used."""

    @property
    def place(self) -> str:
        """Where they are, for people."""

    def current(self, subject: str) -> SubjectKey:
        """The key with which new events of a subject are sealed; it is made, durably, if there is none."""

    def find(self, key_id: str) -> SubjectKey | None:
        """A key by its id; None: it was destroyed.

        Raises:
            SubjectKeyError: this store has never had it.
        """

    def living(self, subject: str) -> list[str]:
        """The ids of the keys of a subject that exist."""

    def destroyed(self, subject: str) -> list[DestroyedKey]:
        """The keys of a subject that were destroyed, oldest first."""

    def destroy(self, subject: str, at_ms: int) -> list[DestroyedKey]:
        """Destroy all keys of a subject, for good; return those of this call. It may be repeated."""


def checked_subject(subject: object) -> str:
    """A data subject: a kind and an id, such as `user:42`.

    Raises:
        EventValidationError: it is none.
    """
    if not isinstance(subject, str) or _SUBJECT.fullmatch(subject) is None:
        raise EventValidationError(
            "metadata.data_subject",
            f"{str(subject)[:80]!r} is no data subject",
            hint="Write a kind and an id, such as user:42.",
        )
    return subject


def key_id_of(subject: str, number: int) -> str:
    """The id of the key with this number, from 1, of a subject."""
    return f"{sha256(subject.encode()).hexdigest()[:24]}-{number}"


class KeyRing:
    """Keys in this process alone: of a log in memory.

    The secrets follow from the subjects: nothing of such a log leaves the process, and a simulation that is
    repeated has the same bytes.
    """

    def __init__(self) -> None:
        self._keys: dict[str, SubjectKey | DestroyedKey] = {}

    @property
    def place(self) -> str:
        """See `SubjectKeys`."""
        return "this process"

    def current(self, subject: str) -> SubjectKey:
        """See `SubjectKeys`."""
        number = 1
        while isinstance(known := self._keys.get(key_id_of(subject, number)), DestroyedKey):
            number += 1
        if known is None:
            key_id = key_id_of(subject, number)
            known = SubjectKey(key_id, subject, sha256(b"in memory" + key_id.encode()).digest())
            self._keys[key_id] = known
        return known

    def find(self, key_id: str) -> SubjectKey | None:
        """See `SubjectKeys`."""
        known = self._keys.get(key_id)
        if known is None:
            raise not_here(key_id, self.place)
        return known if isinstance(known, SubjectKey) else None

    def living(self, subject: str) -> list[str]:
        """See `SubjectKeys`."""
        found = (one for one in self._keys.values() if one.subject == subject)
        return [one.key_id for one in found if isinstance(one, SubjectKey)]

    def destroyed(self, subject: str) -> list[DestroyedKey]:
        """See `SubjectKeys`."""
        found = (one for one in self._keys.values() if one.subject == subject)
        return [one for one in found if isinstance(one, DestroyedKey)]

    def destroy(self, subject: str, at_ms: int) -> list[DestroyedKey]:
        """See `SubjectKeys`."""
        gone = [DestroyedKey(key_id, subject, at_ms) for key_id in self.living(subject)]
        self._keys.update({one.key_id: one for one in gone})
        return gone


def not_here(key_id: str, place: str) -> SubjectKeyError:
    """The error for a key that a store has never had."""
    return SubjectKeyError(
        "metadata.sealed",
        f"the key {key_id[:40]!r} is not in {place}, and was not destroyed there",
        hint="Set NOESIUM_SUBJECT_KEYS to the folder with the keys that all programs of this log share.",
    )
