"""A folder or an object store where pushed states lie, through fsspec: its errors are this project's."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import fsspec
from fsspec.core import url_to_fs

from noesium_stream.config import hide_secrets
from noesium_stream.errors import ConfigError, NoesiumError, SnapshotError, brief

_EXTRAS: Final = {"s3": "pip install 'noesium-stream[s3]'", "s3a": "pip install 'noesium-stream[s3]'"}


class Depot:
    """Files below one URL: a folder (`backups`, `file:///srv/backups`), `s3://BUCKET/PATH`, or any other
    scheme that fsspec knows.

    Raises:
        ConfigError: the scheme is not known, or what it takes is not installed; says what to install.
    """

    def __init__(self, url: str) -> None:
        self.url: Final = str(hide_secrets(url)).rstrip("/")
        scheme = fsspec.utils.get_protocol(url)
        if scheme == "file":
            url = str(Path(url.removeprefix("file://").removeprefix("local://")).expanduser().absolute())
        try:
            self._fs, root = url_to_fs(url)  # type: ignore[no-untyped-call]
        except ImportError as error:
            raise ConfigError(
                f"{self.url}: the scheme {scheme} needs a package that is not installed: {brief(error, 200)}",
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
        """The names of what lies at a place, in order; none where there is no such place.

        Raises:
            SnapshotError: it cannot be read.
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
        """The bytes of a small file; None where there is none. Raises `SnapshotError`."""
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
        """Copy a file of this machine there. Raises `SnapshotError`."""
        with self._translating(place, "written"):
            if not self._fs.async_impl:  # object stores have no folders, and would make a bucket
                self._fs.makedirs(self._path(place).rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(local), self._path(place))

    def fetch(self, place: str, local: Path) -> bool:
        """Copy a file from there; whether there was one. Raises `SnapshotError`."""
        with self._translating(place, "copied here"):
            try:
                self._fs.get_file(self._path(place), str(local))
            except FileNotFoundError:
                return False
            return True

    def remove(self, place: str) -> None:
        """Remove a place with all that lies there; harmless where it is gone. Raises `SnapshotError`."""
        with self._translating(place, "removed"):
            try:
                self._fs.rm(self._path(place), recursive=True)
            except FileNotFoundError:
                return

    def _path(self, place: str) -> str:
        return f"{self._root}/{place}" if place else self._root

    def _require_bucket(self) -> None:
        """An empty place and a bucket that is not there look the same from within."""
        if self._fs.async_impl:
            self._fs.ls(self._root.partition("/")[0], detail=False)

    @contextmanager
    def _translating(self, place: str, done: str) -> Iterator[None]:
        try:
            yield
        except NoesiumError:
            raise
        except Exception as error:  # each store has errors of its own
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
        return SnapshotError(f"{where} cannot be {done}: {brief(error, 300)}.", hint=hint)
