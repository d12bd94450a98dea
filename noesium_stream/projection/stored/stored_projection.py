"""Read access to the states in a folder for any program, without the projection's code.

A version's folder has a `projection.json` beside its state files with the projection's metadata.
`FOLDER/NAME/current` names the version that readers use.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import MISSING, asdict, dataclass, fields, replace
from heapq import merge as in_order
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import orjson

from noesium_stream.errors import ProjectionError, ProjectionNotFoundError, StateFileError, brief
from noesium_stream.log.port import TopicPartition
from noesium_stream.private_files import make_folder
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.code_fingerprint import differs, fingerprint
from noesium_stream.projection.fold.changed_rows import STATE
from noesium_stream.projection.fold.dead_letters import LETTER, Letter, read_letter
from noesium_stream.projection.load import load_projection
from noesium_stream.projection.state.atomic_file import alone, write_whole
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import SUFFIX, merged, parted

ABOUT: Final = "projection.json"
CURRENT: Final = "current"

Load = Callable[[str], AnyProjection]


@dataclass(frozen=True, slots=True)
class About:
    """The content of `projection.json`.

    Attributes:
        reference: `MODULE:NAME`, if its code was loaded that way.
        unmerged: if composed, the parts without `merge`.
        code: the fingerprint of the code that began to fold the state (`code_fingerprint.py`); None if not
            known.
    """

    name: str
    version: int
    reference: str | None
    group: str
    keyed: bool
    merges: bool
    unmerged: Sequence[str] = ()
    code: str | None = None


def describe(
    folder: Path, projection: AnyProjection, group: str, reference: str | None, *, anew: bool = False
) -> bool:
    """Write the metadata of a version's folder; a projection's first version becomes the current one.

    Args:
        folder: the folder of all states.
        projection: the projection.
        group: its consumer group.
        reference: `MODULE:NAME`, if its code was loaded that way.
        anew: whether this code has folded all of the existing state.

    Returns:
        Whether other code of the same version began the existing states. This stays recorded until they are
            folded anew.

    Raises:
        ProjectionError: the folder cannot be written.
    """
    about = About(
        projection.name,
        projection.version,
        reference,
        group,
        projection.keyed(),
        projection.merges(),
        projection.unmerged(),
        fingerprint(projection),
    )
    where = folder / about.name / f"v{about.version}"

    def said(before: About | None) -> About:
        begun = before is not None and not anew and next(where.glob(f"*{SUFFIX}"), None) is not None
        was = before.code if before is not None and begun else None
        changed = differs(was, about.code) and _goes_on(where, StateCodec(projection).shape)
        return replace(about, code=was) if changed else about

    return change_about(folder, about.name, about.version, said).code != about.code


def _goes_on(where: Path, shape: str) -> bool:
    """Whether a state file will be continued; damaged files and those of another shape are rebuilt."""
    for path in where.glob(f"*{SUFFIX}"):
        try:
            with closing(StateFile.open_to_read(path)) as file:
                if file.manifest.identity.shape == shape:
                    return True
        except StateFileError:
            continue
    return False


def _read_about(where: Path) -> About:
    """Read the metadata; fields of newer releases are ignored.

    Raises `OSError`, `ValueError`, `TypeError`, `RecursionError`.
    """
    said = json.loads((where / ABOUT).read_text())
    if not isinstance(said, dict):
        raise ValueError("it is no JSON object")
    known = {field.name for field in fields(About)}
    lacking = [field.name for field in fields(About) if field.default is MISSING and field.name not in said]
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking)}")
    return About(**{name: value for name, value in said.items() if name in known})


def change_about(folder: Path, name: str, version: int, change: Callable[[About | None], About]) -> About:
    """As `describe`, without the projection's code; concurrent processes change it one after the other.

    Args:
        folder: the folder of all states.
        name: the projection's name.
        version: its version.
        change: maps the current metadata, if readable, to the new metadata.

    Returns:
        The new metadata.

    Raises:
        ProjectionError: the folder cannot be written.
    """
    where = folder / name / f"v{version}"
    try:
        make_folder(where)
        with alone(where / ABOUT):
            try:
                before = _read_about(where)
            except (OSError, ValueError, TypeError, RecursionError):
                before = None
            about = change(before)
            write_whole(where / ABOUT, json.dumps(asdict(about), indent=2) + "\n")
        current = where.parent / CURRENT
        if not current.exists():
            with alone(current):
                if not current.exists():
                    write_whole(current, f"{version}\n")
        return about
    except OSError as error:
        raise ProjectionError(
            f"{where} cannot be written: {brief(error)}.", hint="Name another folder: --state DIR."
        ) from error


def make_current(folder: Path, projection: AnyProjection, *, unless_older: bool = False) -> bool:
    """Make this version the one that readers use.

    Args:
        folder: the folder of all states.
        projection: the projection in this version.
        unless_older: keep a newer current version. A restarted old process must not turn it back.

    Returns:
        Whether this version is now current.

    Raises:
        ProjectionError: the folder cannot be written.
    """
    path = folder / projection.name / CURRENT
    try:
        with alone(path):
            if unless_older and projection.version < current_version(path.parent):
                return False
            write_whole(path, f"{projection.version}\n")
            return True
    except OSError as error:
        raise ProjectionError(
            f"{path} cannot be written: {brief(error)}.", hint="Make room or grant the right; then again."
        ) from error


class StoredProjection:
    """The states of one version in a folder.

    Args:
        path: the version's folder.
        load: resolves a reference to the projection; called only when states must be merged.
    """

    def __init__(self, path: Path, load: Load) -> None:
        try:
            self.about = _read_about(path)
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise ProjectionError(
                f"{path / ABOUT} cannot be read: {brief(error)}.",
                hint="Attach the projection: it is made anew. noesium project MODULE:NAME",
            ) from error
        self.path = path
        self._load = load

    @property
    def how_to_mend(self) -> str:
        """Advice for a damaged row: an attached fold detects the damage only when an event reads the row."""
        return f"Fold it again: noesium project {self.about.reference or 'MODULE:NAME'} --rebuild"

    def files(self) -> list[Path]:
        """Its state files, by topic and partition."""
        return sorted(self.path.glob(f"*{SUFFIX}"))

    def cursors(self) -> Iterator[tuple[Path, int]]:
        """The next offset of each readable file."""
        for path in self.files():
            with suppress(StateFileError), closing(StateFile.open_to_read(path)) as file:
                yield path, file.manifest.cursor

    def is_current(self) -> bool:
        """Whether readers use this version."""
        return current_version(self.path.parent) == self.about.version

    def has_reached(self, mine: Collection[TopicPartition], ends: Mapping[str, Mapping[int, int]]) -> bool:
        """Whether its files on this machine, including those of `mine`, are folded up to `ends`.

        Args:
            mine: partitions whose files must exist.
            ends: next offsets, by topic and partition.
        """
        found = set()
        for path in self.files():
            try:
                file = StateFile.open_to_read(path)
            except StateFileError:
                return False  # it is being created
            with closing(file):
                at = file.manifest.identity
                if file.manifest.cursor < ends.get(at.topic, {}).get(at.partition, 0):
                    return False
                found.add(TopicPartition(at.topic, at.partition))
        return found.issuperset(mine)

    def get(self, key: str) -> Any | None:
        """The state of a row as JSON, as of the last flush; None if there is no such row.

        Raises:
            StateFileError: a file is damaged.
            ProjectionError: the row has parts in several partitions, and `merge` is not declared.
        """
        found = []
        for path in self.files():
            with closing(StateFile.open_to_read(path)) as file:
                data = file.get(_row_of(key))
                if data is not None:
                    found.append(data)
        return self._one(found, key)

    def is_empty(self) -> bool:
        """Whether there are neither rows nor dead letters; a damaged file counts as not empty."""
        try:
            for path in self.files():
                with closing(StateFile.open_to_read(path)) as file:
                    if file.manifest.held or next(file.scan(STATE), None) is not None:
                        return False
        except StateFileError:
            return False
        return True

    def rows(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """All rows whose keys begin with `prefix`, in UTF-8 byte order of their keys.

        Raises as `get`.
        """
        start = STATE + prefix.encode(errors="surrogatepass")
        with ExitStack() as stack:
            files = [stack.enter_context(closing(StateFile.open_to_read(path))) for path in self.files()]
            together = in_order(*(file.scan(start) for file in files), key=itemgetter(0))
            for key, same in groupby(together, key=itemgetter(0)):
                name = key[1:].decode(errors="surrogatepass")
                yield name, self._one([data for _, data in same], name)

    def letters(self) -> Iterator[tuple[Path, Letter]]:
        """The dead letters, each with its state file."""
        for path in self.files():
            with closing(StateFile.open_to_read(path)) as file:
                for _, row in file.scan(LETTER):
                    yield path, read_letter(row)

    def _one(self, found: list[bytes], key: str) -> Any | None:
        if len(found) < 2:
            return orjson.loads(found[0]) if found else None
        reference = self.about.reference
        if reference is None or not self.about.merges:
            raise parted(self.about.name, self.about.keyed, key, self._having(key), self.about.unmerged)
        projection = self._load(reference)
        codec: StateCodec[Any] = StateCodec(projection)
        state = merged(projection, map(codec.decode, found), key)
        return orjson.loads(codec.encode(state))

    def _having(self, key: str) -> list[TopicPartition]:
        """The partitions that hold a part of a row."""
        found = []
        for path in self.files():
            with closing(StateFile.open_to_read(path)) as file:
                if file.get(_row_of(key)) is not None:
                    at = file.manifest.identity
                    found.append(TopicPartition(at.topic, at.partition))
        return found


def stored_versions(
    folder: Path, load: Load, damaged: Callable[[ProjectionError], None] | None = None
) -> list[StoredProjection]:
    """Every version of every projection in a folder, by name and version.

    Args:
        folder: the folder of all states.
        load: as for `StoredProjection`.
        damaged: called for each folder with unreadable metadata; None raises instead.

    Raises:
        ProjectionError: the metadata of a folder cannot be read.
    """
    found = []
    for about in sorted(folder.glob(f"*/*/{ABOUT}")):
        try:
            found.append(StoredProjection(about.parent, load))
        except ProjectionError as error:
            if damaged is None:
                raise
            damaged(error)
    return sorted(found, key=lambda stored: (stored.about.name, stored.about.version))


def open_stored_projection(
    folder: Path, name: str, version: int | None = None, *, load: Load = load_projection
) -> StoredProjection:
    """Open the state of a projection that `noesium project` keeps in a folder, to read it.

    Args:
        folder: where states are kept.
        name: of the projection.
        version: which one; None: the current one.
        load: gives the projection of a reference, where the code is needed.

    Raises:
        ProjectionNotFoundError: the folder has no such projection.
    """
    number = current_version(folder / name) if version is None else version
    path = folder / name / f"v{number}"
    if not (path / ABOUT).exists():
        others = stored_versions(folder, load, damaged=lambda error: None)
        numbers = [f"v{stored.about.version}" for stored in others if stored.about.name == name]
        known = ", ".join(numbers or sorted({stored.about.name for stored in others}))
        what = "the projection" if version is None else f"version {version} of the projection"
        raise ProjectionNotFoundError(
            f"There is no state of {what} {name!r} in {folder}.",
            hint=f"There are: {known}." if known else "Attach it first: noesium project MODULE:NAME",
        )
    return StoredProjection(path, load)


def current_version(path: Path) -> int:
    """The version that readers use of the projection in this folder; 1 if none is named."""
    try:
        return int((path / CURRENT).read_text())
    except (OSError, ValueError):
        return 1


def _row_of(key: str) -> bytes:
    return STATE + key.encode(errors="surrogatepass")
