"""Releasing the dead letters of a projection, in order, by whoever writes its state files.

Where a process follows the projection, it has the files: it is asked by a request beside each (`….redrive`),
which it removes when it has done it. Where nobody does, the asking process does it itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from noesium_stream.errors import StateBusyError
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import TopicKind
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.fold import PartitionFold
from noesium_stream.projection.state_codec import StateCodec
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
    reader = StateFile.open_to_read(path)
    identity = reader.manifest.identity
    reader.close()
    try:
        file = StateFile.open(path, identity)
    except StateBusyError:
        Path(f"{path}{REQUEST}").write_text(json.dumps({"keys": None if keys is None else list(keys)}))
        return None
    try:
        journal = log.topology.kind(identity.topic) is TopicKind.JOURNAL
        fold = PartitionFold(projection, codec, file, journal=journal)
        return Redriven(*fold.redrive(log.decoder, keys))
    finally:
        file.close()


def answer_request(log: EventLog, fold: PartitionFold[Any]) -> Redriven | None:
    """Do what a request beside the fold's file asks; None: there is none.

    Raises:
        StateFileError, ProjectionError: as `PartitionFold.redrive`.
    """
    request = Path(f"{fold.file.path}{REQUEST}")
    try:
        keys = json.loads(request.read_text())["keys"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        keys = None  # half written: whoever wrote it wants letters released
    done = Redriven(*fold.redrive(log.decoder, keys))
    with suppress(FileNotFoundError):
        request.unlink()
    return done
