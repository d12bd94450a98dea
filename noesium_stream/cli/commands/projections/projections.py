"""`noesium projections`: progress of each projection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from noesium_stream.cli.commands.projections.shares import elsewhere, living
from noesium_stream.cli.output import duration, note, out_json
from noesium_stream.cli.session import (
    asynchronous,
    json_option,
    log_option,
    opened,
    projections_folder,
    settings,
    state_option,
)
from noesium_stream.cli.table import table
from noesium_stream.clock import SystemClock
from noesium_stream.errors import LogTruncatedError, ProjectionError, StateFileError, TopicNotFoundError
from noesium_stream.log import EventLog
from noesium_stream.log.port import TopicShape
from noesium_stream.projection.load import load_projection
from noesium_stream.projection.state.manifest import Manifest
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.stored_projection import StoredProjection, stored_versions

_SAMPLE_S: Final = 1.0
"""Time over which a rate is measured, in seconds: processes write their files at least twice in it."""
_MOST_BATCHES: Final = 20
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

    `lag_events` is the number of log offsets that its files have not folded, `lag_ms` the time that the
    oldest of these events has been on the log, `age_ms` the time since a file was written last, and
    `events_per_s` the present rate of folding: measured if processes follow the projection, else 0.
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

    Only projections with a state on this machine are listed. If processes follow one, the rate is measured
    over one second, for which this command waits.
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
    """Measure the events folded per second, by folder, of the projections that processes follow."""
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
    """Count the events folded into the readable files."""
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
    seen = _seen(stored, manifests, await log.layout())
    behind = {
        manifest: ends[manifest.identity.topic].get(manifest.identity.partition, 0) - cursor
        for manifest, cursor in seen.items()
    }
    unseen: dict[str, dict[int, int]] = {}
    for manifest, lag in behind.items():
        if lag > 0:
            unseen.setdefault(manifest.identity.topic, {})[manifest.identity.partition] = seen[manifest]
    now_ms = SystemClock().now_ms()
    oldest = [await oldest_ms(log, topic, cursor, ends[topic]) for topic, cursor in unseen.items()]
    written = written_ms(stored)
    return _Status(
        stored.about.name,
        stored.about.version,
        stored.is_current(),
        len(manifests),
        sum(manifest.events for manifest in manifests),
        sum(max(0, lag) for lag in behind.values()),
        max(0, now_ms - min((ms for ms in oldest if ms is not None), default=now_ms)),
        events_per_s,
        0 if written is None else max(0, now_ms - written),
        sum(manifest.held for manifest in manifests),
        str(stored.path),
    )


def _seen(
    stored: StoredProjection, manifests: list[Manifest], layout: Mapping[str, TopicShape]
) -> dict[Manifest, int]:
    """Return how far each file has read the present topic; report a topic that was created anew."""
    seen = {}
    anew = set()
    for manifest in manifests:
        at = manifest.identity
        shape = layout.get(at.topic)
        other = shape is not None and shape.topic_id != at.topic_id
        if other:
            anew.add(at.topic)
        seen[manifest] = 0 if other else manifest.cursor
    for topic in sorted(anew):
        note(
            f"{stored.about.name} v{stored.about.version}: {topic} was deleted and made anew, and its state "
            "is of the old one. It is folded again when the projection is attached."
        )
    return seen


async def oldest_ms(log: EventLog, topic: str, cursor: dict[int, int], end: Mapping[int, int]) -> int | None:
    """Return the append time of the oldest record between these offsets; None: there is none, or it is gone.

    Of many partitions only those that are read first count: this is a quick look, not a fold.
    """
    until = {partition: end[partition] for partition in cursor}
    batches = log.read_batches(topic, cursor, until=until, partitions=list(cursor))
    found: dict[int, int] = {}
    read = 0
    try:
        async for batch in batches:
            for record in batch:
                found.setdefault(record.partition, record.timestamp_ms)
            read += 1
            if len(found) == len(cursor) or read == _MOST_BATCHES:
                break
    except LogTruncatedError:
        pass  # it is reported when the projection is attached
    finally:
        if isinstance(batches, AsyncGenerator):
            await batches.aclose()
    return min(found.values(), default=None)


def written_ms(stored: StoredProjection) -> int | None:
    """Return the time of the last write to its files, in milliseconds; None: there are no files.

    A write-ahead log counts only if it is not empty, because readers create empty ones. The writer may remove
    files at any time.
    """
    found = []
    for file in stored.files():
        for path, least in ((file, 0), (Path(f"{file}-wal"), 1)):
            with suppress(FileNotFoundError):
                about = path.stat()
                if about.st_size >= least:
                    found.append(int(about.st_mtime * 1000))
    return max(found, default=None)


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
