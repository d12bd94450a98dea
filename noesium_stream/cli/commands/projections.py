"""`noesium projections`: how far each projection is."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from noesium_stream.cli.output import duration, note, out_json, table
from noesium_stream.cli.session import (
    asynchronous,
    json_option,
    log_option,
    opened,
    projections_folder,
    settings,
    state_option,
)
from noesium_stream.cli.shares import elsewhere
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ProjectionError, StateFileError, TopicNotFoundError
from noesium_stream.log import EventLog
from noesium_stream.projection.load import load_projection
from noesium_stream.projection.state_file import Manifest, StateFile
from noesium_stream.projection.stored import StoredProjection, stored_versions


@dataclass(frozen=True, slots=True)
class _Status:
    """One version of a projection on this machine.

    `lag_events` counts offsets of the log that its files have not seen; `lag_ms` is how old the newest event
    is that it has seen, while it is behind; `age_ms` how long ago a file was written last.
    """

    name: str
    version: int
    current: bool
    partitions: int
    events: int
    lag_events: int
    lag_ms: int
    age_ms: int
    dead_letters: int
    path: str


@click.command("projections")
@log_option
@state_option
@json_option
@asynchronous
async def projections_command(log_url: str | None, state_dir: Path | None, as_json: bool) -> None:
    """List projections: version, lag, dead letters.

    Told are those that keep their state on this machine.
    """
    folder = projections_folder(settings(log_url), state_dir)
    async with opened(log_url) as log:
        found = []
        for stored in stored_versions(folder, load_projection, damaged=_say):
            found.append(await _status(log, stored))
            if (sentence := await elsewhere(log, stored)) is not None:
                note(sentence)
    if as_json:
        out_json([asdict(status) for status in found])
    elif not found:
        note(f"No projection keeps its state in {folder}.")
    else:
        header = ("projection", "version", "partitions", "events", "lag", "behind", "written", "dead letters")
        table(header, map(_row, found), right=frozenset({2, 3, 4, 5, 6, 7}))


def _say(error: ProjectionError) -> None:
    note(f"{error.message} {error.hint or ''}".rstrip())


async def _status(log: EventLog, stored: StoredProjection) -> _Status:
    manifests: list[Manifest] = []
    for path in stored.files():
        try:
            with closing(StateFile.open_to_read(path)) as file:
                manifests.append(file.manifest)
        except StateFileError as error:
            note(f"{error} It is made anew when the projection is attached.")
    ends = {}
    for topic in {manifest.identity.topic for manifest in manifests}:
        try:
            ends[topic] = await log.end(topic)
        except TopicNotFoundError:
            ends[topic] = {}
    behind = {
        manifest: ends[manifest.identity.topic].get(manifest.identity.partition, 0) - manifest.cursor
        for manifest in manifests
    }
    now_ms = SystemClock().now_ms()
    waiting = [now_ms - manifest.last_ms for manifest, lag in behind.items() if lag > 0 and manifest.last_ms]
    written = max((int(path.stat().st_mtime * 1000) for path in _written(stored)), default=now_ms)
    return _Status(
        stored.about.name,
        stored.about.version,
        stored.is_current(),
        len(manifests),
        sum(manifest.events for manifest in manifests),
        sum(max(0, lag) for lag in behind.values()),
        max(waiting, default=0),
        max(0, now_ms - written),
        sum(manifest.held for manifest in manifests),
        str(stored.path),
    )


def _written(stored: StoredProjection) -> list[Path]:
    """Its files and their write-ahead logs."""
    return [path for file in stored.files() for path in (file, Path(f"{file}-wal")) if path.exists()]


def _row(status: _Status) -> tuple[str, ...]:
    return (
        status.name,
        f"v{status.version}" if status.current else f"v{status.version} (not current)",
        str(status.partitions),
        f"{status.events:,}",
        f"{status.lag_events:,}",
        duration(status.lag_ms),
        f"{duration(status.age_ms)} ago",
        f"{status.dead_letters:,}",
    )
