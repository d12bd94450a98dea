"""Redrive of a projection's dead letters, done in order by the process that writes its state files.

If a process follows the projection, it owns the files. Requests are files beside each state file
(`….redrive`), which it removes when they are done. If no process follows the projection, the requester does
it itself.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from noesium_stream.errors import ProjectionError, StateBusyError
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import TopicKind
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.state.atomic_file import write_whole
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.state_file.sqlite import not_writable

REQUEST: Final = ".redrive"
PATIENCE_S: Final = 30.0
LOOK_S: Final = 0.1
"""Interval at which the requester looks for an answer."""


class Redriven(NamedTuple):
    """The number of letters that were folded, and the number that remain."""

    folded: int
    stayed: int


async def redrive_files(
    log: EventLog, projection: AnyProjection, paths: Iterable[Path], keys: Sequence[str] | None
) -> bool:
    """Redrive the letters in these state files, here or in the process that writes them.

    If the writing process leaves without an answer, the letters are redriven here after all.

    Returns:
        Whether other processes were asked and have answered.

    Raises:
        StateFileError, ProjectionError: as `redrive_file`; or another process does not answer.
    """
    asked = {path: ask(path, keys) for path in paths if redrive_file(log, projection, path, keys) is None}
    answered = False
    waited = 0.0
    while asked:
        if waited >= PATIENCE_S:
            raise ProjectionError(
                f"The process that follows {projection.name} has not answered for {PATIENCE_S:.0f} s.",
                hint="It does so when it can; look with: noesium dlq list",
            )
        await asyncio.sleep(LOOK_S)
        waited += LOOK_S
        for path, request in list(asked.items()):
            if not request.exists():
                answered = True
                del asked[path]
            elif redrive_file(log, projection, path, keys) is not None:
                request.unlink(missing_ok=True)
                del asked[path]
    return answered


def redrive_file(
    log: EventLog, projection: AnyProjection, path: Path, keys: Sequence[str] | None
) -> Redriven | None:
    """Redrive the letters in one state file; None if another process writes it and must be asked.

    Raises:
        StateFileError: the file is damaged.
        ProjectionError: the file cannot be written.
    """
    codec: StateCodec[Any] = StateCodec(projection)
    with closing(StateFile.open_to_read(path)) as reader:
        identity = reader.manifest.identity
    try:
        file = StateFile.open(path, identity)
    except StateBusyError:
        return None
    if (identity.version, identity.shape) != (projection.version, codec.shape):
        file.close()
        raise ProjectionError(
            f"{path} is of version {identity.version} of {projection.name}, and the code here is version "
            f"{projection.version}, or its states are of another type: it cannot fold on there.",
            hint="Attach the new version: its own state is folded from the log, letters too.",
        )
    try:
        journal = log.topology.kind(identity.topic) is TopicKind.JOURNAL
        fold = PartitionFold(projection, codec, file, journal=journal)
        return Redriven(*fold.redrive(log.decoder, keys))
    finally:
        file.close()


def ask(path: Path, keys: Sequence[str] | None) -> Path:
    """Request a redrive from the process that writes a state file; it removes the returned request when done.

    Each request is a file of its own, written atomically: requests never replace each other.

    Raises:
        ProjectionError: the request cannot be written.
    """
    text = json.dumps({"keys": None if keys is None else list(keys)})
    try:
        while True:
            with TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as mine:  # a unique name
                request = Path(f"{path}.{mine.rpartition('.')[2]}{REQUEST}")
                if not request.exists():  # else the name belongs to another unanswered request
                    write_whole(request, text)
                    return request
    except OSError as error:
        raise not_writable(path, error) from error


def requests_in(folder: Path) -> Mapping[str, Sequence[Path]]:
    """The requests beside the state files of a folder, by state file name."""
    found: dict[str, list[Path]] = {}
    with suppress(FileNotFoundError):
        for name in sorted(os.listdir(folder)):
            if name.endswith(REQUEST):
                found.setdefault(name.removesuffix(REQUEST).rpartition(".")[0], []).append(folder / name)
    return found


def answer_requests(log: EventLog, fold: PartitionFold[Any], requests: Iterable[Path]) -> Redriven:
    """Execute the requests beside the fold's file, and remove them.

    Raises:
        StateFileError, ProjectionError: as `PartitionFold.redrive`.
    """
    answered, wanted = [], []
    for request in requests:
        with suppress(FileNotFoundError):
            wanted.append(_keys_in(request.read_text()))
            answered.append(request)
    keys: set[str] | None = set()
    for some in wanted:
        keys = None if keys is None or some is None else keys.union(some)
    done = Redriven(*fold.redrive(log.decoder, None if keys is None else sorted(keys)))
    for request in answered:
        request.unlink(missing_ok=True)
    return done


def _keys_in(request: str) -> list[str] | None:
    """The keys of a request; None for all keys, also if the content is not a valid request."""
    try:
        keys = json.loads(request)["keys"]
    except (ValueError, KeyError, TypeError):
        return None
    return keys if isinstance(keys, list) and all(isinstance(key, str) for key in keys) else None
