"""Contents in an object store, through fsspec; imported only when a URL is given."""

from __future__ import annotations

from typing import Final

from fsspec.core import url_to_fs

from noesium_stream.errors import ConfigError, ToolExecutionError, brief
from noesium_stream.redaction import redacted, redacted_url

_HINT: Final = "Look whether the address, the credentials and the network are what they should be."


class UrlPlace:
    """Contents below a URL, such as `s3://BUCKET/PATH`.

    Raises:
        ConfigError: the scheme is unknown, or its package is not installed.
    """

    def __init__(self, url: str) -> None:
        self._shown: Final = redacted_url(url).rstrip("/")
        try:
            self._fs, root = url_to_fs(url)  # type: ignore[no-untyped-call]
        except ImportError as error:
            raise ConfigError(
                f"The content store {self._shown} needs a package that is not installed: "
                f"{redacted(brief(error, 200))}.",
                hint="pip install 'noesium-stream[s3]'",
            ) from error
        except Exception as error:  # each store has its own error types
            raise ConfigError(
                f"The content store {self._shown} cannot be opened: {redacted(brief(error, 200))}.",
                hint="Give a folder, or s3://BUCKET/PATH.",
            ) from error
        self._root = root.rstrip("/")

    def read(self, name: str, limit: int) -> bytes | None:
        """See `ContentPlace.read`."""
        try:
            data: bytes = self._fs.cat_file(self._path(name), start=0, end=limit)
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._failed("read", error) from error
        return data

    def write(self, name: str, data: bytes) -> None:
        """See `ContentPlace.write`; an object store shows a whole object or none."""
        try:
            if not self._fs.async_impl:  # an object store has no folders; makedirs would make a bucket
                self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(self._path(name), data)
        except Exception as error:
            raise self._failed("written", error) from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name[:2]}/{name}"

    def _failed(self, done: str, error: Exception) -> ToolExecutionError:
        what = redacted(brief(error, 200))
        return ToolExecutionError(f"The content store {self._shown} cannot be {done}: {what}.", hint=_HINT)
