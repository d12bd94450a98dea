"""Snapshots of a partition's state, so that earlier states can be restored quickly (RFC-0004 §7, §13).

A snapshot is taken when the events folded since the last one reach a sixteenth of that one's total, and at
least 5,000. So folding from the nearest snapshot to any position takes at most about a sixteenth of a full
replay. Snapshots are derived data: any of them may be deleted, and one for which there is no room is skipped.
If they exceed `BUDGET`, those whose loss costs least are deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from noesium_stream.errors import ProjectionError, StateFileError
from noesium_stream.private_files import make_folder
from noesium_stream.projection.state.manifest import Manifest
from noesium_stream.projection.state.state_file import StateFile

FOLDER: Final = "snapshots"
FEWEST_EVENTS: Final = 5_000
SHARE: Final = 16
BUDGET: Final = 64_000_000
"""Size limit of a partition's snapshots in bytes, or four times its state file if that is more."""


class Snapshot(NamedTuple):
    """A snapshot's number of events, its cursor, and the append time of its last event (ms)."""

    events: int
    cursor: int
    last_ms: int
    path: Path


def snapshots_of(state: Path) -> list[Snapshot]:
    """The existing snapshots of a state file, oldest first."""
    found = []
    for path in (state.parent / FOLDER).glob(f"{state.stem}@*{state.suffix}"):
        with suppress(ValueError):  # another program's file
            events, cursor, last_ms = path.stem.rpartition("@")[2].split("-")
            found.append(Snapshot(int(events), int(cursor), int(last_ms), path))
    return sorted(found)


def drop_copies(folder: Path, names: Collection[str]) -> None:
    """Remove the snapshots of these state files, and snapshots without a state file, from a folder.

    Raises:
        OSError: the folder cannot be written.
    """
    for copy in (folder / FOLDER).glob("*@*"):
        state = f"{copy.stem.rpartition('@')[0]}{copy.suffix}"
        if state in names or not (folder / state).exists():
            copy.unlink(missing_ok=True)


def move_copies(source: Path, folder: Path) -> None:
    """Move all snapshots from one folder to another.

    Raises:
        OSError: the folder cannot be written.
    """
    for copy in (source / FOLDER).glob("*@*"):
        make_folder(folder / FOLDER)
        copy.replace(folder / FOLDER / copy.name)


class Snapshots:
    """Takes the snapshots of one partition's state file.

    Args:
        file: the state file, open for writing.
    """

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._kept = snapshots_of(file.path)
        self._before = 0
        for unfinished in (file.path.parent / FOLDER).glob(f".{file.path.stem}@*"):
            unfinished.unlink(missing_ok=True)
        if self._kept and self._kept[-1].events > file.manifest.events:
            self.forget()  # they belong to a discarded state

    def after_flush(self, manifest: Manifest) -> None:
        """Take a snapshot if one is due and there is room.

        Raises:
            StateFileError: the file is damaged.
        """
        before = max(self._before, self._kept[-1].events if self._kept else 0)
        if manifest.events - before < max(FEWEST_EVENTS, before // SHARE):
            return
        self._before = manifest.events
        folder = self._file.path.parent / FOLDER
        name = f"{self._file.path.stem}@{manifest.events}-{manifest.cursor}-{manifest.last_ms}"
        path, beside = folder / f"{name}{self._file.path.suffix}", folder / f".{name}.new"
        try:
            make_folder(folder)
            beside.unlink(missing_ok=True)
            self._file.copy_to(beside)
            beside.replace(path)
        except StateFileError:
            raise
        except (OSError, ProjectionError):
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            return
        self._kept.append(Snapshot(manifest.events, manifest.cursor, manifest.last_ms, path))
        self._thin()

    def forget(self) -> None:
        """Remove all snapshots."""
        for snapshot in self._kept:
            snapshot.path.unlink(missing_ok=True)
        self._kept = []

    def _thin(self) -> None:
        sizes = {}
        for snapshot in self._kept:
            with suppress(FileNotFoundError):
                sizes[snapshot] = snapshot.path.stat().st_size
        self._kept = list(sizes)
        if not self._kept:
            return
        budget = max(BUDGET, 4 * sizes[self._kept[-1]])
        while sum(sizes.values()) > budget and len(self._kept) > 2:
            _, index = min(
                ((after.events - before.events) / (before.events + 1), index)
                for index, (before, after) in enumerate(
                    zip(self._kept[:-2], self._kept[2:], strict=True), start=1
                )
            )
            gone = self._kept.pop(index)
            del sizes[gone]
            gone.path.unlink(missing_ok=True)
