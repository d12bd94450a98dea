"""`noesium snapshot`: copies projections' states from machine to machine."""

from __future__ import annotations

from pathlib import Path

import click
from humanize import naturalsize

from noesium_stream.cli.output import note, out
from noesium_stream.cli.session import (
    asynchronous,
    log_option,
    opened,
    projections_folder,
    settings,
    state_option,
)
from noesium_stream.cli.signals import synchronous
from noesium_stream.clock import SystemClock
from noesium_stream.config import NoesiumConfig
from noesium_stream.errors import ProjectionNotFoundError, SnapshotError
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.projection.load import load_projection
from noesium_stream.projection.stored.stored_projection import (
    StoredProjection,
    open_stored_projection,
    stored_versions,
)
from noesium_stream.projection.transfer.object_store import Depot
from noesium_stream.projection.transfer.pull import pull
from noesium_stream.projection.transfer.push import KEEP, projections_in, prune, push


@click.group("snapshot")
def snapshot_command() -> None:
    """Push projections' states to a folder or an object store, or pull them.

    A machine that pulls folds only the events after the push. URL is a folder, s3://BUCKET/PATH, or a URL of
    any other scheme that fsspec knows.
    """


@snapshot_command.command("push")
@click.argument("url")
@click.argument("name", required=False)
@click.option(
    "--keep",
    type=click.IntRange(1),
    default=KEEP,
    show_default=True,
    help="How many pushes of each partition stay; older ones are removed.",
)
@log_option
@state_option
@synchronous
def push_command(url: str, name: str | None, keep: int, log_url: str | None, state_dir: Path | None) -> None:
    """Send the states of a projection, or of all, as they are now.

    Folding may go on meanwhile. Several machines may push, each its own partitions.
    """
    loaded = settings(log_url)
    depot, clock = Depot(url), SystemClock()
    signer = None if loaded.noesium.signing_key is None else Signer.from_file(loaded.noesium.signing_key)
    for stored in _chosen(projections_folder(loaded, state_dir), name):
        shipment = push(depot, stored, clock, signer)
        gone = prune(depot, shipment, keep, clock, _verifier(loaded.noesium))
        count = len(shipment.files)
        packed = naturalsize(sum(file.packed_bytes for file in shipment.files))
        events = sum(file.events for file in shipment.files)
        about = f"{stored.about.name} v{stored.about.version}"
        note(f"{about}: {events:,} events in {count} partitions, {packed}; {gone} older pushes removed")
        out(f"{depot.url}/{shipment.place}")


@snapshot_command.command("pull")
@click.argument("url")
@click.argument("name", required=False)
@click.option("--version", "version", type=click.IntRange(1), help="Another version than the newest push's.")
@log_option
@state_option
@asynchronous
async def pull_command(
    url: str, name: str | None, version: int | None, log_url: str | None, state_dir: Path | None
) -> None:
    """Fetch the states of a projection, or of all, if they are newer than those here.

    The next `noesium project` goes on from there. A state that is damaged, or wrongly signed if public keys
    are configured, is reported, and an older push is used.
    """
    loaded = settings(log_url)
    folder = projections_folder(loaded, state_dir)
    depot = Depot(url)
    names = projections_in(depot) if name is None else [name]
    if not names:
        raise ProjectionNotFoundError(
            f"There are no pushes in {depot.url}.", hint="Push one: noesium snapshot push URL"
        )
    async with opened(log_url) as log:
        for one in names:
            done = await pull(
                log,
                depot,
                folder,
                one,
                version=version,
                verifier=_verifier(loaded.noesium),
                load=load_projection,
                report=note,
            )
            events = f"{done.events:,} events in {done.taken} partitions"
            note(f"{one} v{done.version}: {events} taken, {done.left} partitions stay as they are")


def _chosen(folder: Path, name: str | None) -> list[StoredProjection]:
    if name is not None:
        return [open_stored_projection(folder, name)]
    found = [stored for stored in stored_versions(folder, load_projection) if stored.is_current()]
    if not found:
        raise SnapshotError(
            f"No projection keeps its state in {folder}.",
            hint="Attach one first: noesium project MODULE:NAME",
        )
    return found


def _verifier(config: NoesiumConfig) -> Verifier | None:
    if config.public_keys is None and config.signatures != "required":
        return None
    return Verifier.from_file(config.public_keys, required=True)
