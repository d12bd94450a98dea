"""`KeyFolder`: keys of data subjects in a folder, one private file each (see `keys.py`).

    <key id>.key      the subject and its secret
    <key id>.erased   the subject, and when its key was destroyed

Several processes may use one folder. The file `.erased` is written before the file `.key` is removed and
counts alone, so that a key that is half destroyed is destroyed. Each use looks whether the file is still
there: a process that has read a key does not outlive its destruction.
"""

from __future__ import annotations

import base64
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from noesium_stream.clock import Clock
from noesium_stream.errors import SubjectKeyError
from noesium_stream.event.sealing.keys import (
    KEY_ID,
    SECRET_BYTES,
    DestroyedKey,
    SubjectKey,
    key_id_of,
    not_here,
)
from noesium_stream.private_files import FILE_MODE, make_folder

_KEY: Final = ".key"
_ERASED: Final = ".erased"
_MAX_BYTES: Final = 10_000
_CACHED: Final = 10_000


class KeyFolder:
    """The keys in one folder, which is made with the first key.

    Args:
        path: the folder.
        clock: where secrets come from.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._read: dict[str, tuple[tuple[int, int], SubjectKey]] = {}
        self._numbers: dict[str, int] = {}

    @property
    def place(self) -> str:
        """See `SubjectKeys`."""
        return str(self.path)

    def current(self, subject: str) -> SubjectKey:
        """See `SubjectKeys`."""
        number = self._numbers.get(subject, 1)
        while True:
            key_id = key_id_of(subject, number)
            key = self._found(key_id)
            if key is None and not self._file(key_id, _ERASED).exists():
                key = self._made(SubjectKey(key_id, subject, bytes.fromhex(self._clock.token(SECRET_BYTES))))
            if key is not None:
                if len(self._numbers) >= _CACHED:
                    self._numbers.clear()
                self._numbers[subject] = number
                return key
            number += 1

    def find(self, key_id: str) -> SubjectKey | None:
        """See `SubjectKeys`."""
        if KEY_ID.fullmatch(key_id) is None:
            raise not_here(key_id, self.place)
        key = self._found(key_id)
        if key is None and not self._file(key_id, _ERASED).exists():
            raise not_here(key_id, self.place)
        return key

    def living(self, subject: str) -> list[str]:
        """See `SubjectKeys`."""
        return [key_id for key_id in self._ids(subject) if self._found(key_id) is not None]

    def destroyed(self, subject: str) -> list[DestroyedKey]:
        """See `SubjectKeys`."""
        found = []
        for key_id in self._ids(subject):
            told = self._content(self._file(key_id, _ERASED))
            if told is not None:
                at_ms = told.get("at_ms")
                found.append(DestroyedKey(key_id, subject, at_ms if isinstance(at_ms, int) else 0))
        return found

    def destroy(self, subject: str, at_ms: int) -> list[DestroyedKey]:
        """See `SubjectKeys`. The secret is overwritten before its file is removed."""
        gone = []
        for key_id in self._ids(subject):
            path = self._file(key_id, _KEY)
            if not path.exists():
                continue
            try:
                # 1. From here on the key counts as destroyed.
                self._write(self._file(key_id, _ERASED), {"subject": subject, "at_ms": at_ms})
                # 2. Its bytes.
                with open(path, "r+b") as file:
                    file.write(bytes(os.fstat(file.fileno()).st_size))
                    file.flush()
                    os.fsync(file.fileno())
                path.unlink()
                self._sync()
            except OSError as error:
                raise self._unusable(f"{path.name} cannot be destroyed: {error.strerror}") from error
            self._read.pop(key_id, None)
            gone.append(DestroyedKey(key_id, subject, at_ms))
        return gone

    def _ids(self, subject: str) -> list[str]:
        """The ids of all keys that a subject has had."""
        found: list[str] = []
        number = 1
        while True:
            key_id = key_id_of(subject, number)
            if not (self._file(key_id, _KEY).exists() or self._file(key_id, _ERASED).exists()):
                return found
            found.append(key_id)
            number += 1

    def _found(self, key_id: str) -> SubjectKey | None:
        """A key that exists."""
        path = self._file(key_id, _KEY)
        try:
            status = os.stat(path)
        except FileNotFoundError:
            self._read.pop(key_id, None)
            return None
        except OSError as error:
            raise self._unusable(f"{path.name} cannot be read: {error.strerror}") from error
        written = status.st_ino, status.st_mtime_ns
        known = self._read.get(key_id)
        if known is not None and known[0] == written:
            return known[1]
        if self._file(key_id, _ERASED).exists():
            return None
        key = self._parsed(key_id, self._content(path))
        if len(self._read) >= _CACHED:
            self._read.clear()
        self._read[key_id] = written, key
        return key

    def _parsed(self, key_id: str, told: dict[str, Any] | None) -> SubjectKey:
        try:
            secret = base64.b64decode((told or {})["secret"], validate=True)
            subject = (told or {})["subject"]
        except (KeyError, TypeError, ValueError):
            secret, subject = b"", ""
        known_id = key_id.rpartition("-")[0]
        if len(secret) != SECRET_BYTES or key_id_of(str(subject), 1).rpartition("-")[0] != known_id:
            raise self._unusable(f"{key_id}{_KEY} is no key of a data subject")
        return SubjectKey(key_id, subject, secret)

    def _made(self, key: SubjectKey) -> SubjectKey | None:
        """Write a new key; whoever comes first makes it. None: it was destroyed meanwhile."""
        make_folder(self.path)
        told = {"subject": key.subject, "secret": base64.b64encode(key.secret).decode()}
        try:
            self._write(self._file(key.key_id, _KEY), told)
        except OSError as error:
            raise self._unusable(f"a key cannot be written: {error.strerror}") from error
        return self._found(key.key_id)

    def _write(self, path: Path, told: dict[str, Any]) -> None:
        """Write a file as a whole or not at all, so that it survives a power cut; keep an older one."""
        draft = path.with_name(f".{path.name}.{os.getpid()}.{self._clock.token(4)}")
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(told, file)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        self._sync()

    def _sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _content(self, path: Path) -> dict[str, Any] | None:
        try:
            with open(path, "rb") as file:
                told = json.loads(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(f"{path.name} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError):
            told = None
        return told if isinstance(told, dict) else {}

    def _file(self, key_id: str, suffix: str) -> Path:
        return self.path / f"{key_id}{suffix}"

    def _unusable(self, problem: str) -> SubjectKeyError:
        return SubjectKeyError("metadata.sealed", f"the keys in {self.path}: {problem}")
