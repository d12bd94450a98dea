"""`noesium projections`: how far each projection is."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

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
from noesium_stream.cli.shares import elsewhere, living
from noesium_stream.clock import SystemClock
from noesium_stream.errors import ProjectionError, StateFileError, TopicNotFoundError
from noesium_stream.log import EventLog
from noesium_stream.projection.load import load_projection
from noesium_stream.projection.manifest import Manifest
from noesium_stream.projection.state_file import StateFile
from noesium_stream.projection.stored import StoredProjection, stored_versions

_SAMPLE_S: Final = 1.0
"""How long a rate is looked at: processes write what they have folded every half a second at least."""
_HEADER: Final = (
    "projection",
    "version",
    "partitions",
    "events",
    "lag",
    "behind",
    "rate",
    "written",
    "dead letters",
)


@dataclass(frozen=True, slots=True)
class _Status:
    """One version of a projection on this machine.

    `lag_events` counts offsets of the log that its files have not seen; `lag_ms` is how old the newest event
    is that it has seen, while it is behind; `age_ms` how long ago a file was written last; `events_per_s` how
    many events are folded into them now: told where processes follow it, else 0.
    """

    name: str
    version: int
    current: bool
    partitions: int
    events: int
    lag_events: int
    lag_ms: int
    events_per_s: float
    age_ms: int
    dead_letters: int
    path: str


@click.command("projections")
@log_option
@state_option
@json_option
@asynchronous
async def projections_command(log_url: str | None, state_dir: Path | None, as_json: bool) -> None:
    """List projections: version, lag, rate, age, dead letters.

    Told are those that keep their state on this machine. Where processes follow one, the rate is what they
    fold in one second, which this command waits for.
    """
    folder = projections_folder(settings(log_url), state_dir)
    async with opened(log_url) as log:
        versions = stored_versions(folder, load_projection, damaged=_say)
        rates = await _rates(log, versions)
        found = []
        for stored in versions:
            found.append(await _status(log, stored, rates.get(stored.path, 0.0)))
            if (sentence := await elsewhere(log, stored)) is not None:
                note(sentence)
    if as_json:
        out_json([asdict(status) for status in found])
    elif not found:
        note(f"No projection keeps its state in {folder}.")
    else:
        table(_HEADER, map(_row, found), right=frozenset(range(2, len(_HEADER))))


def _say(error: ProjectionError) -> None:
    note(f"{error.message} {error.hint or ''}".rstrip())


async def _rates(log: EventLog, versions: list[StoredProjection]) -> dict[Path, float]:
    """Events folded per second, by the folders of those that processes follow."""
    followed = [stored for stored in versions if living(await log.members(stored.about.group))]
    if not followed:
        return {}
    now = asyncio.get_running_loop().time
    before = {stored.path: (now(), _events(stored)) for stored in followed}
    await asyncio.sleep(_SAMPLE_S)
    rates = {}
    for stored in followed:
        began_s, events = before[stored.path]
        # A file that was made anew meanwhile has fewer than before.
        rates[stored.path] = round(max(0, _events(stored) - events) / (now() - began_s), 1)
    return rates


def _events(stored: StoredProjection) -> int:
    """How many were folded into the files that can be read."""
    count = 0
    for path in stored.files():
        with suppress(StateFileError), closing(StateFile.open_to_read(path)) as file:
            count += file.manifest.events
    return count


async def _status(log: EventLog, stored: StoredProjection, events_per_s: float) -> _Status:
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
        events_per_s,
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
        f"{status.events_per_s:,.0f}/s",
        f"{duration(status.age_ms)} ago",
        f"{status.dead_letters:,}",
    )
