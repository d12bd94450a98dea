"""Push of states to an object store: another machine takes them over and folds only later events.

`URL/NAME/vVERSION/PUSH/` has a compact copy of each state file of the pushing machine, compressed with zstd,
and `manifest.json`. The manifest is written last: a push without a manifest does not exist.

Each machine pushes the partitions that it has, at any time; nothing is shared and nothing is locked. A pull
takes each partition from the push that has folded it furthest. `keep` counts per partition too: a push is
removed when that many other pushes have folded each of its partitions further. So machines need not know of
each other. Any program that can write to the store determines the states that a pull takes: use signing keys
where that matters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from uuid import UUID

import zstandard

from noesium_stream.clock import Clock, to_rfc3339
from noesium_stream.errors import SnapshotError, StateFileError, brief
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.private_files import private
from noesium_stream.projection.state.manifest import Manifest
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import Report
from noesium_stream.projection.stored.stored_projection import StoredProjection
from noesium_stream.projection.transfer.object_store import Depot
from noesium_stream.projection.transfer.push_manifest import (
    MANIFEST,
    PACKED,
    Shipment,
    ShippedFile,
    seal,
    unseal,
)
from noesium_stream.state_file.claim import discard

KEEP: Final = 3
_BLOCK: Final = 1 << 20
_ALWAYS_TAKEN_BYTES: Final = 64 << 20
_MOST_TIMES_PACKED: Final = 200
"""Above `_ALWAYS_TAKEN_BYTES` a state is at most so many times larger than its compressed form: rows with
checksums compress two to ten times, and what compresses 30,000 times is nothing but zeros."""
_MAX_WINDOW_BYTES: Final = 8 << 20
"""Memory that a compressed file may ask for; the compressor's level 3 needs 2 MB."""
_UNFINISHED_MS: Final = 24 * 3_600_000
"""Age after which a push without a manifest counts as interrupted."""


def push(depot: Depot, stored: StoredProjection, clock: Clock, signer: Signer | None) -> Shipment:
    """Upload the states of a version, which may be written meanwhile; return the manifest.

    Raises:
        SnapshotError: the store cannot be written, or this machine has no room for a copy.
        StateFileError: a state file is damaged; no pull will use what was uploaded so far.
    """
    about, push_id = stored.about, clock.uuid7()
    paths = stored.files()
    if not paths:
        raise SnapshotError(
            f"The projection {about.name} v{about.version} has no state yet.", hint="Let it fold something."
        )
    place = f"{about.name}/v{about.version}/{push_id}"
    try:
        files = tuple(_send(depot, place, path) for path in paths)
    except StateFileError as error:
        error.hint = stored.how_to_mend
        raise
    shipment = Shipment(
        push=push_id,
        pushed=to_rfc3339(clock.now_ms()),
        projection=about.name,
        version=about.version,
        reference=about.reference,
        group=about.group,
        keyed=about.keyed,
        merges=about.merges,
        unmerged=tuple(about.unmerged),
        code=about.code,
        files=files,
    )
    depot.write(f"{place}/{MANIFEST}", seal(shipment, signer))  # written last: it completes the push
    return shipment


def _send(depot: Depot, place: str, path: Path) -> ShippedFile:
    try:
        with TemporaryDirectory(prefix="noesium-") as name:
            copy, packed = Path(name) / path.name, Path(name) / f"{path.name}{PACKED}"
            with closing(StateFile.open_to_read(path)) as file:
                file.copy_to(copy)
            manifest = _verified(copy, path)
            size = copy.stat().st_size
            with copy.open("rb") as source, packed.open("wb") as sink:
                zstandard.ZstdCompressor(level=3, write_checksum=True).copy_stream(source, sink, size=size)
            depot.send(packed, f"{place}/{packed.name}")
            identity = manifest.identity
            return ShippedFile(
                topic=identity.topic,
                topic_id=identity.topic_id,
                partition=identity.partition,
                shape=identity.shape,
                cursor=manifest.cursor,
                events=manifest.events,
                bytes=size,
                packed_bytes=packed.stat().st_size,
                sha256=_sha256(packed),
            )
    except OSError as error:
        raise SnapshotError(
            f"A copy of {path} cannot be made: {brief(error, 200)}.", hint="Make room in TMPDIR."
        ) from error


def _verified(copy: Path, path: Path) -> Manifest:
    """The manifest of a copy after all of its rows were verified."""
    try:
        with closing(StateFile.open_to_read(copy)) as file:
            file.verify()
            return file.manifest
    except StateFileError as error:
        raise StateFileError(error.message.replace(str(copy), str(path))) from error


def prune(depot: Depot, newest: Shipment, keep: int, clock: Clock, verifier: Verifier | None) -> int:
    """Remove pushes of this version that `keep` others supersede, and interrupted ones older than a day.

    A push that cannot be read or verified is kept. Returns the number of removed pushes.

    Raises:
        SnapshotError: the store refuses.
    """
    base = newest.place.rpartition("/")[0]
    found, unfinished = [], []
    for name in depot.names(base):
        data = depot.read(f"{base}/{name}/{MANIFEST}")
        if data is None:
            unfinished.append(name)
            continue
        with suppress(SnapshotError):
            found.append(unseal(data, f"{base}/{name}", verifier))
    ids = {(file.topic, file.topic_id) for file in newest.files}
    kept: set[str] = {newest.push}
    for tp in {(file.topic, file.partition) for shipment in found for file in shipment.files}:
        ranks = sorted(
            (((file.topic, file.topic_id) in ids, file.cursor, shipment.push), shipment.push)
            for shipment in found
            for file in shipment.files
            if (file.topic, file.partition) == tp
        )
        kept.update(push_id for _, push_id in ranks[-keep:])
    gone = [shipment.push for shipment in found if shipment.push not in kept]
    gone += [name for name in unfinished if _is_old(name, clock.now_ms())]
    for name in gone:
        depot.remove(f"{base}/{name}/{MANIFEST}")  # first: a half removed push must not look complete
        depot.remove(f"{base}/{name}")
    return len(gone)


def projections_in(depot: Depot) -> list[str]:
    """The names of the projections that were pushed there. Raises `SnapshotError`."""
    return [name for name in depot.names() if any(_versions(depot, name))]


def pushed(
    depot: Depot, name: str, version: int | None, verifier: Verifier | None, report: Report
) -> list[Shipment]:
    """All pushes that can be trusted, newest first; by default those of the newest push's version.

    Raises:
        SnapshotError: there are none, or the store cannot be read.
    """
    found = []
    refused: SnapshotError | None = None
    for number in sorted(_versions(depot, name), reverse=True):
        if version not in (None, number):
            continue
        for push_id in reversed(depot.names(f"{name}/v{number}")):
            place = f"{name}/v{number}/{push_id}"
            data = depot.read(f"{place}/{MANIFEST}")
            try:
                if data is not None:
                    found.append(unseal(data, place, verifier))
            except SnapshotError as error:
                refused = error
                report(f"{error} It is passed over.")
    found.sort(key=lambda shipment: shipment.push, reverse=True)
    if not found:
        which = name if version is None else f"{name} v{version}"
        raise SnapshotError(
            f"There is no push of {which} in {depot.url} that can be taken.",
            hint="Push one: noesium snapshot push URL" if refused is None else None,
        )
    return [shipment for shipment in found if shipment.version == found[0].version]


def _versions(depot: Depot, name: str) -> Iterator[int]:
    for folder in depot.names(name):
        if folder[:1] == "v" and folder[1:].isdecimal():
            yield int(folder[1:])


def unpack(depot: Depot, shipment: Shipment, file: ShippedFile, beside: Path) -> None:
    """Download a state file to a new path, and check it against the manifest.

    Raises:
        SnapshotError: it differs, cannot be read, or there is no room here.
    """
    where = f"{depot.url}/{shipment.place}/{file.name}{PACKED}"
    packed = beside.with_name(f"{beside.name}{PACKED}")
    most = max(_ALWAYS_TAKEN_BYTES, file.packed_bytes * _MOST_TIMES_PACKED)
    if file.bytes > most:
        raise SnapshotError(
            f"{where} is refused: {file.packed_bytes:,} bytes are said to hold {file.bytes:,}, "
            f"and at most {most:,} are believed.",
            hint="Whoever can write there could fill this disk; push the state again.",
        )
    try:
        if not depot.fetch(f"{shipment.place}/{file.name}{PACKED}", packed):
            raise SnapshotError(f"{where} is missing.")
        if packed.stat().st_size != file.packed_bytes or _sha256(packed) != file.sha256:
            raise SnapshotError(f"{where} is not what its manifest says.")
        _decompress(packed, beside, file.bytes)
        with closing(StateFile.open_to_read(beside)) as found:
            found.verify()
            at, cursor = found.manifest.identity, found.manifest.cursor
        said = (shipment.projection, shipment.version, file.topic, file.topic_id, file.partition, file.shape)
        if (at.projection, at.version, at.topic, at.topic_id, at.partition, at.shape) != said or (
            cursor != file.cursor
        ):
            raise SnapshotError(f"{where} is not what its manifest says.")
    except (StateFileError, zstandard.ZstdError) as error:
        raise SnapshotError(f"{where} is damaged: {brief(error, 200)}.") from error
    finally:
        packed.unlink(missing_ok=True)


def _decompress(packed: Path, target: Path, limit: int) -> None:
    with packed.open("rb") as source, open(target, "wb", opener=private) as sink:
        left = limit
        with zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).stream_reader(source) as reader:
            while block := reader.read(_BLOCK):
                left -= len(block)
                if left < 0:
                    break
                sink.write(block)
    if left != 0:
        discard(target)
        raise zstandard.ZstdError("it has another size than its manifest says")


def _is_old(push_id: str, now_ms: int) -> bool:
    try:
        return (UUID(push_id).int >> 80) < now_ms - _UNFINISHED_MS
    except ValueError:
        return False  # not one of our names


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
