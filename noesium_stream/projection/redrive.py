"""Releasing the dead letters of a projection, in order, by whoever writes its state files.

Where a process follows the projection, it has the files: it is asked by a request beside each (`….redrive`),
which it removes when it has done it. Where nobody does, the asking process does it itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from noesium_stream.errors import ProjectionError, StateBusyError
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import TopicKind
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.fold import PartitionFold
from noesium_stream.projection.state_codec import StateCodec
from noesium_stream.projection.state_db import not_writable
from noesium_stream.projection.state_file import StateFile

REQUEST: Final = ".redrive"


class Redriven(NamedTuple):
    """How many letters were folded, and how many stay."""

    folded: int
    stayed: int


def redrive_file(
    log: EventLog, projection: AnyProjection, path: Path, keys: Sequence[str] | None
) -> Redriven | None:
    """Release the letters in one state file; None: another process writes it and has been asked.

    Raises:
        StateFileError: the file is damaged.
        ProjectionError: it cannot be written.
    """
    codec: StateCodec[Any] = StateCodec(projection)
    with closing(StateFile.open_to_read(path)) as reader:
        identity = reader.manifest.identity
    try:
        file = StateFile.open(path, identity)
    except StateBusyError:
        _ask(path, keys)
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


def _ask(path: Path, keys: Sequence[str] | None) -> None:
    request = Path(f"{path}{REQUEST}")
    beside = request.with_name(f".{request.name}.new")
    wanted = None if keys is None else list(keys)
    try:
        if wanted is not None:
            with suppress(FileNotFoundError):  # else it is another one's, which is not answered yet
                before = _keys_in(request.read_text())
                wanted = None if before is None else sorted({*before, *wanted})
        beside.write_text(json.dumps({"keys": wanted}))
        beside.replace(request)
    except OSError as error:
        raise not_writable(request, error) from error


def is_asked(fold: PartitionFold[Any]) -> bool:
    """Whether there is a request beside the fold's file."""
    return Path(f"{fold.file.path}{REQUEST}").exists()


def answer_request(log: EventLog, fold: PartitionFold[Any]) -> Redriven | None:
    """Do what a request beside the fold's file asks; None: there is none.

    Raises:
        StateFileError, ProjectionError: as `PartitionFold.redrive`.
    """
    request = Path(f"{fold.file.path}{REQUEST}")
    try:
        text = request.read_text()
    except FileNotFoundError:
        return None
    done = Redriven(*fold.redrive(log.decoder, _keys_in(text)))
    with suppress(FileNotFoundError):
        if request.read_text() == text:  # else it is another one, and answered next
            request.unlink()
    return done


def _keys_in(request: str) -> list[str] | None:
    """Whose letters a request wants released; None: all, also where it is none of ours."""
    try:
        keys = json.loads(request)["keys"]
    except (ValueError, KeyError, TypeError):
        return None
    return keys if isinstance(keys, list) and all(isinstance(key, str) for key in keys) else None
