"""Pull of pushed states into the folder where the next `noesium project` continues from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from noesium_stream.errors import ProjectionLoadError, SnapshotError, StateBusyError, StateFileError
from noesium_stream.event.signing import Verifier
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.code_fingerprint import differs, fingerprint
from noesium_stream.projection.load import SHIPPED
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.manifest import Manifest
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import SUFFIX, Report
from noesium_stream.projection.stored.stored_projection import (
    ABOUT,
    About,
    Load,
    StoredProjection,
    change_about,
    current_version,
)
from noesium_stream.projection.transfer.object_store import Depot
from noesium_stream.projection.transfer.push import pushed, unpack
from noesium_stream.projection.transfer.push_manifest import Shipment, ShippedFile
from noesium_stream.state_file.claim import discard, locked
from noesium_stream.state_file.sqlite import not_writable


class Pulled(NamedTuple):
    """The result of a pull: version, partitions taken, their events, partitions left unchanged."""

    version: int
    taken: int
    events: int
    left: int


class _Choice(NamedTuple):
    shipment: Shipment
    file: ShippedFile


async def pull(
    log: EventLog,
    depot: Depot,
    folder: Path,
    name: str,
    *,
    version: int | None,
    verifier: Verifier | None,
    load: Load,
    report: Report,
) -> Pulled:
    """Take each partition from the push that has folded it furthest, if that is further than the local state.

    A damaged file, or one of another topic than the log's, is reported, and the next older push is used. A
    file that another process holds is left alone.

    Raises:
        SnapshotError: no push can be trusted, or none has anything that this log can use.
        ProjectionError: the state folder cannot be written.
        LogUnavailableError
    """
    shipments = pushed(depot, name, version, verifier, report)
    newest = shipments[0]
    target = folder / name / f"v{newest.version}"
    here = StoredProjection(target, load).about if (target / ABOUT).exists() else None
    projection = _code_here(here, load, report)
    shape = None if projection is None else StateCodec(projection).shape
    choices = await _choices(log, shipments, shape, report)
    before: list[str | None] = []
    try:
        # 1. Record the fingerprints that may arrive, so that a crash in step 2 does not lose them.
        coming = [choice.shipment.code for those in choices.values() for choice in those]

        def may_come(about: About | None) -> About:
            nonlocal before
            before = [] if about is None else [about.code]
            return replace(about or _about(newest), code=_noted([*coming, *before], projection))

        noted = change_about(folder, name, newest.version, may_come).code
        # 2. Put the state files in place.
        done = [_land(depot, target, those, report) for _, those in sorted(choices.items())]
        # 3. Record the fingerprints of the new and of the remaining files.
        taken = [choice.file for choice in done if choice is not None]
        stays = {path.name for path in target.glob(f"*{SUFFIX}")} - {file.name for file in taken}
        codes = [choice.shipment.code for choice in done if choice is not None]

        def came(about: About | None) -> About:
            meanwhile = [] if about is None or about.code == noted else [about.code]  # attached just now
            known = [*codes, *(before if stays else ()), *meanwhile]
            return replace(about or _about(newest), code=_noted(known, projection))

        change_about(folder, name, newest.version, came)
    except OSError as error:
        raise not_writable(target, error) from error
    if current_version(folder / name) != newest.version:
        report(f"Readers here take v{current_version(folder / name)} of {name}, until this one is attached.")
    return Pulled(newest.version, len(taken), sum(file.events for file in taken), len(done) - len(taken))


def _about(newest: Shipment) -> About:
    """The metadata of a projection that was not here before.

    A push names code, and later commands import what the metadata name: only the package's own is taken over.
    Whoever attaches the projection names its code.
    """
    ours = newest.reference in {*SHIPPED, *SHIPPED.values()}
    return About(
        newest.projection,
        newest.version,
        newest.reference if ours else None,
        newest.group,
        newest.keyed,
        newest.merges,
        newest.unmerged,
        newest.code,
    )


def _noted(codes: list[str | None], projection: AnyProjection | None) -> str | None:
    """The single fingerprint to record for states that several codes may have folded.

    A fingerprint that differs from the local code's takes precedence: a process that attaches must be told.
    """
    now = None if projection is None else fingerprint(projection)
    known = [code for code in codes if code is not None]
    return next((code for code in known if differs(code, now)), next(iter(known), None))


def _code_here(about: About | None, load: Load, report: Report) -> AnyProjection | None:
    """The local projection; None if it is not known or has another version.

    Only code that was attached here before is imported, never code that a push names.
    """
    if about is None or about.reference is None:
        return None
    try:
        projection = load(about.reference)
    except ProjectionLoadError:
        return None
    if projection.version != about.version:
        report(f"{about.reference} is version {projection.version} here, and does not use v{about.version}.")
        return None
    return projection


async def _choices(
    log: EventLog, shipments: list[Shipment], shape: str | None, report: Report
) -> Mapping[TopicPartition, list[_Choice]]:
    """The usable pushed files of each partition, the furthest first.

    Raises:
        SnapshotError: there are none.
    """
    layout = await log.layout()
    ends = {
        topic: await log.end(topic)
        for topic in {file.topic for shipment in shipments for file in shipment.files} & layout.keys()
    }
    found: defaultdict[TopicPartition, list[_Choice]] = defaultdict(list)
    reasons: dict[str, None] = {}
    for shipment in shipments:
        for file in shipment.files:
            where = f"{file.topic}/{file.partition}"
            topic = layout.get(file.topic)
            if topic is None:
                reasons[f"{where}: this log has no such topic."] = None
            elif topic.topic_id != file.topic_id:
                text = f"the topic was deleted and made anew (its id was {file.topic_id})"
                reasons[f"{where}: {text}."] = None
            elif file.cursor > ends[file.topic].get(file.partition, 0):
                reasons[f"{where}: the push is ahead of the log, which has lost its newest events."] = None
            elif shape not in (None, file.shape):
                reasons[f"{where}: its states are of another type ({file.shape})."] = None
            else:
                found[TopicPartition(file.topic, file.partition)].append(_Choice(shipment, file))
    for reason in reasons:
        report(reason)
    if not found:
        raise SnapshotError(
            f"No push of {shipments[0].projection} is of this log.", hint="Name the log: --log URL."
        )
    for choices in found.values():
        choices.sort(key=lambda choice: (choice.file.cursor, choice.shipment.push), reverse=True)
    return found


def _land(depot: Depot, target: Path, choices: list[_Choice], report: Report) -> _Choice | None:
    """Put the first intact choice in the place of the state file; None if the local file stays."""
    first = choices[0].file
    path = target / first.name
    where = f"{first.topic}/{first.partition}"
    try:
        lock = locked(path)
    except StateBusyError:
        report(f"{where} is left to the process that folds it.")
        return None
    with lock:
        here = _manifest_here(path)
        for choice in choices:
            shipment, file = choice
            same = here is not None and (here.identity.topic_id, here.identity.shape) == (
                file.topic_id,
                file.shape,
            )
            if same and here is not None and here.cursor >= file.cursor:
                if here.cursor > file.cursor:
                    report(f"{where} is at {here.cursor:,} here, the push at {file.cursor:,}: it stays.")
                return None
            if _replaced(depot, shipment, file, path, report):
                return choice
    report(f"{where} has no push that is whole: it is folded from the log.")
    return None


def _replaced(depot: Depot, shipment: Shipment, file: ShippedFile, path: Path, report: Report) -> bool:
    beside = path.with_name(f".{path.name}.pulled")
    discard(beside)
    try:
        unpack(depot, shipment, file, beside)
        discard(path)  # including SQLite's files beside it, which belong to the old file
        beside.replace(path)
    except SnapshotError as error:
        report(f"{error} It is passed over.")
        return False
    finally:
        discard(beside)
    return True


def _manifest_here(path: Path) -> Manifest | None:
    """The manifest of the local file; None if there is no usable one."""
    if not path.exists():
        return None
    try:
        with closing(StateFile.open_to_read(path)) as file:
            return file.manifest
    except StateFileError:
        return None
