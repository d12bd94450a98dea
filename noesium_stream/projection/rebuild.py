"""Rebuild of a projection beside the state that readers use (RFC-0004 §8.3).

Everything is folded from the log's beginning into a separate folder. If the old and the new state should
agree, they are compared at the positions that the old state has reached. An event that cannot be folded ends
it, unless such events are to be held back. Only then the files are swapped, one by one; each file is whole at
any time. After an interruption some files are old and some are new: each is
correct up to its own position, and another rebuild replaces them all.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from noesium_stream.clock import SystemClock
from noesium_stream.errors import (
    EventHeldError,
    ProjectionError,
    RebuildDiffersError,
    StateBusyError,
    StateFileError,
    brief,
)
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.observability import projection_rebuild_duration
from noesium_stream.private_files import make_folder
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.fold.changed_rows import STATE
from noesium_stream.projection.state.snapshots import drop_copies, move_copies
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import SUFFIX, Report, is_written, version_folder
from noesium_stream.projection.stored.stored_projection import current_version, make_current
from noesium_stream.state_file.claim import discard, locked
from noesium_stream.state_file.sqlite import not_writable, require_whole

_SIDE: Final = ".rebuild"


class Rebuilt(NamedTuple):
    """The result of a rebuild: events folded, partitions, dead letters, and compared rows.

    `replaced` is False if the state of the same version was found equal while another process writes it: that
    state stays.
    """

    events: int
    partitions: int
    held: int
    compared: int
    replaced: bool = True


async def rebuild(
    log: EventLog,
    projection: AnyProjection,
    folder: Path,
    *,
    verify: bool,
    report: Report,
    hold: bool = False,
) -> Rebuilt:
    """Fold everything again, compare if requested, and replace the state.

    With `verify` the current state of the same version must equal the new one. With `hold` events that cannot
    be folded become dead letters as `on_error` says, and the state takes over without them.

    Raises:
        EventHeldError: an event cannot be folded, and `hold` is False; nothing was replaced.
        RebuildDiffersError: the states differ; nothing was replaced.
        StateBusyError: another process on this machine follows the same version, and the states were not
            compared; stop it first.
        ProjectionError: as `ProjectionEngine.catch_up`.
    """
    old = folder / projection.name / f"v{current_version(folder / projection.name)}"
    side = folder / _SIDE / projection.name
    with _alone(side):
        shutil.rmtree(side, ignore_errors=True)
        clock = SystemClock()
        began = clock.monotonic()
        folding = projection if hold else copy.copy(projection)
        if not hold:
            folding.on_error = "stop"  # type: ignore[misc]  # this instance's, not the class's
        try:
            rebuilt = await _rebuilt(log, folding, folder, old, verify, report)
            projection_rebuild_duration.record(clock.monotonic() - began, {"noesium.name": projection.name})
            return rebuilt
        except EventHeldError as error:
            raise EventHeldError(
                f"{error.message.rstrip('.')}. Nothing was replaced.",
                hint="Mend `apply` and rebuild again; with --on-error hold the new state takes over without "
                "such events, which become dead letters.",
            ) from error
        finally:
            shutil.rmtree(side, ignore_errors=True)


async def check_folded(
    log: EventLog, projection: AnyProjection, folder: Path, call: Callable[..., Any]
) -> int:
    """Fold the events of a state once more, apart from it; return their number.

    Args:
        log: an open log.
        projection: the projection.
        folder: the folder of all states.
        call: how `key` and `apply` are called, such as a `PurityCheck`.

    Raises:
        ImpureProjectionError, ProjectionError: as `ProjectionEngine.catch_up`.
    """
    folded: list[StateFile] = []
    with ExitStack() as stack:
        for path in version_folder(folder, projection).glob(f"*{SUFFIX}"):
            with suppress(StateFileError):  # a damaged file is folded again, and checked then
                folded.append(stack.enter_context(closing(StateFile.open_to_read(path))))
        until = _cursors(folded)
    with ProjectionEngine(log, call=call) as engine:
        engine.register(projection.name, projection)
        return sum(manifest.events for manifest in await engine.catch_up(projection.name, until))


def _alone(side: Path) -> ExitStack:
    """Lock out other rebuilds of the same projection."""
    try:
        make_folder(side.parent)
        return locked(side)
    except OSError as error:
        raise not_writable(side, error) from error


async def _rebuilt(
    log: EventLog, projection: AnyProjection, folder: Path, old: Path, verify: bool, report: Report
) -> Rebuilt:
    compared = 0
    with ProjectionEngine(log, folder / _SIDE, report=report) as engine, ExitStack() as stack:
        engine.register(projection.name, projection)
        if not verify and _is_followed(projection, folder):  # before any work is done
            raise _followed(projection, built=False)
        if verify:
            before = _readers(old, stack)
            await engine.catch_up(projection.name, _cursors(before))
            compared = _compare(projection, engine, before)
            report(f"{compared:,} rows are the same")
        manifests = await engine.catch_up(projection.name)
    try:
        _take_over(projection, folder, version_folder(folder / _SIDE, projection))
        replaced = True
    except StateBusyError as error:
        replaced = False
        if not verify or old != version_folder(folder, projection):
            raise _followed(projection, built=True) from error
    return Rebuilt(
        sum(manifest.events for manifest in manifests),
        len(manifests),
        sum(manifest.held for manifest in manifests),
        compared,
        replaced,
    )


def _is_followed(projection: AnyProjection, folder: Path) -> bool:
    try:
        return is_written(folder, projection)
    except OSError as error:
        raise not_writable(version_folder(folder, projection), error) from error


def _followed(projection: AnyProjection, *, built: bool) -> StateBusyError:
    name = f"{projection.name} v{projection.version}"
    what = "was built, and cannot take over" if built else "cannot be rebuilt"
    return StateBusyError(
        f"{name} {what}: its state is being written by another process. Nothing was replaced.",
        hint="Stop the process that follows it, then rebuild."
        if built
        else "Stop the process that follows it, then rebuild; with --verify it is compared beside that one.",
    )


def _readers(old: Path, stack: ExitStack) -> list[StateFile]:
    found = [
        stack.enter_context(closing(StateFile.open_to_read(path))) for path in sorted(old.glob(f"*{SUFFIX}"))
    ]
    if not found:
        raise ProjectionError(
            f"There is no state in {old} to compare with.", hint="Rebuild without --verify."
        )
    return found


def _cursors(files: list[StateFile]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for file in files:
        identity = file.manifest.identity
        found.setdefault(identity.topic, {})[identity.partition] = file.manifest.cursor
    return found


def _compare(projection: AnyProjection, engine: ProjectionEngine, before: list[StateFile]) -> int:
    """Raise at the first row that differs; return the number of rows."""
    count = 0
    for file in before:
        at = file.manifest.identity
        new = engine.file(projection.name, TopicPartition(at.topic, at.partition))
        for old_row, new_row in zip_longest(_rows(file), _rows(new)):
            if old_row != new_row:
                key, was, now = _parted(old_row, new_row)
                raise RebuildDiffersError(
                    f"The rebuilt {projection.name} v{projection.version} differs from v{at.version} at "
                    f"{at.topic}/{at.partition}@{file.manifest.cursor}: the row {key!r} was {_shown(was)} "
                    f"and is {_shown(now)}. Nothing was replaced.",
                    hint="If it is meant to differ, count `version` up, or rebuild without --verify.",
                )
            count += 1
    return count


def _rows(file: StateFile | None) -> Iterator[tuple[bytes, bytes]]:
    return iter(()) if file is None else file.scan(STATE)


def _parted(old: tuple[bytes, bytes] | None, new: tuple[bytes, bytes] | None) -> tuple[str, Any, Any]:
    """The first key at which two ordered tables differ, with its old and new state; None if missing."""
    key = min(row[0] for row in (old, new) if row is not None)

    def value(row: tuple[bytes, bytes] | None) -> Any:
        return orjson.loads(row[1]) if row is not None and row[0] == key else None

    return (key[1:].decode(errors="surrogatepass"), value(old), value(new))


def _shown(value: Any) -> str:
    text = "missing" if value is None else orjson.dumps(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}…"


def _take_over(projection: AnyProjection, folder: Path, built: Path) -> None:
    target = version_folder(folder, projection)
    try:
        for path in built.glob(f"*{SUFFIX}"):
            require_whole(path)
        make_folder(target)
        with ExitStack() as stack:
            names = {path.name for place in (target, built) for path in place.glob(f"*{SUFFIX}")}
            for name in sorted(names):
                stack.enter_context(locked(target / name))
            # 1. Delete the old code's snapshots: they must not outlive its state.
            drop_copies(target, names)
            # 2. Replace each file. A crash leaves a whole file, or none, which is then folded from the log.
            for name in sorted(names):
                discard(target / name)
                if (built / name).exists():
                    (built / name).replace(target / name)
            # 3. Move the new snapshots.
            move_copies(built, target)
        make_current(folder, projection)
    except OSError as error:
        raise ProjectionError(
            f"{target} cannot be written: {brief(error)}.", hint="Make room or grant the right; then again."
        ) from error
