"""Folder or object store for pushed states, through fsspec, with this project's errors."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import fsspec
from fsspec.core import url_to_fs

from noesium_stream.errors import ConfigError, NoesiumError, SnapshotError, brief
from noesium_stream.redaction import redacted, redacted_url

_EXTRAS: Final = {"s3": "pip install 'noesium-stream[s3]'", "s3a": "pip install 'noesium-stream[s3]'"}


class Depot:
    """Files below one URL.

    The URL is a folder (`backups`, `file:///srv/backups`), `s3://BUCKET/PATH`, or has any other scheme that
    fsspec knows.

    Raises:
        ConfigError: the scheme is unknown, or its package is not installed; the message says what to install.
    """

    def __init__(self, url: str) -> None:
        self.url: Final = redacted_url(url).rstrip("/")
        scheme = fsspec.utils.get_protocol(url)
        if scheme == "file":
            url = str(Path(url.removeprefix("file://").removeprefix("local://")).expanduser().absolute())
        try:
            self._fs, root = url_to_fs(url)  # type: ignore[no-untyped-call]
        except ImportError as error:
            reason = redacted(brief(error, 200))
            raise ConfigError(
                f"{self.url}: the scheme {scheme} needs a package that is not installed: {reason}",
                hint=_EXTRAS.get(scheme),
            ) from error
        except ValueError as error:
            raise ConfigError(
                f"{self.url}: the scheme {scheme} is not known.",
                hint="Give a folder, or s3://BUCKET/PATH.",
            ) from error
        except Exception as error:
            raise self._failed("", "opened", error) from error
        self._root = root.rstrip("/")

    def names(self, place: str = "") -> list[str]:
        """The names at a place, sorted; empty if there is no such place.

        Raises:
            SnapshotError: the place cannot be read.
        """
        with self._translating(place, "read"):
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._path(place), detail=False)
            except FileNotFoundError:
                self._require_bucket()
                return []
            return sorted({path.rstrip("/").rpartition("/")[2] for path in found} - {""})

    def read(self, place: str) -> bytes | None:
        """The bytes of a small file; None if it is missing. Raises `SnapshotError`."""
        with self._translating(place, "read"):
            try:
                data: bytes = self._fs.cat_file(self._path(place))
            except FileNotFoundError:
                return None
            return data

    def write(self, place: str, data: bytes) -> None:
        """Write a small file. Raises `SnapshotError`."""
        with self._translating(place, "written"):
            self._fs.pipe_file(self._path(place), data)

    def send(self, local: Path, place: str) -> None:
        """Upload a local file. Raises `SnapshotError`."""
        with self._translating(place, "written"):
            if not self._fs.async_impl:  # object stores have no folders; makedirs would create a bucket
                self._fs.makedirs(self._path(place).rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(local), self._path(place))

    def fetch(self, place: str, local: Path) -> bool:
        """Download a file; return whether it exists. Raises `SnapshotError`."""
        with self._translating(place, "copied here"):
            try:
                self._fs.get_file(self._path(place), str(local))
            except FileNotFoundError:
                return False
            return True

    def remove(self, place: str) -> None:
        """Remove a place and everything below it. Idempotent. Raises `SnapshotError`."""
        with self._translating(place, "removed"):
            try:
                self._fs.rm(self._path(place), recursive=True)
            except FileNotFoundError:
                return

    def _path(self, place: str) -> str:
        return f"{self._root}/{place}" if place else self._root

    def _require_bucket(self) -> None:
        """Raise if the bucket is missing.

        A listing shows a missing bucket as an empty place.
        """
        if self._fs.async_impl:
            self._fs.ls(self._root.partition("/")[0], detail=False)

    @contextmanager
    def _translating(self, place: str, done: str) -> Iterator[None]:
        try:
            yield
        except NoesiumError:
            raise
        except Exception as error:  # each store has its own error types
            raise self._failed(place, done, error) from error

    def _failed(self, place: str, done: str, error: Exception) -> SnapshotError:
        where = f"{self.url}/{place}" if place else self.url
        number: Any = getattr(error, "errno", None)
        if isinstance(error, FileNotFoundError):
            hint = "Make it first, or correct the address."
        elif isinstance(error, PermissionError):
            hint = "Grant the right, or use other credentials."
        elif number in (errno.ENOSPC, errno.EDQUOT):
            hint = "Make room, then again: what was half written counts for nothing."
        else:
            hint = "Look whether the address, the credentials and the network are what they should be."
        return SnapshotError(f"{where} cannot be {done}: {redacted(brief(error, 300))}.", hint=hint)
