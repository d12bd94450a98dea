"""`noesium project`: a process that folds the log into local state."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from noesium_stream.cli.output import note
from noesium_stream.cli.session import (
    asynchronous,
    log_option,
    must_exist,
    open_configured,
    projections_folder,
    settings,
    state_option,
)
from noesium_stream.errors import EventStoreError, TopicNotFoundError
from noesium_stream.log import EventLog
from noesium_stream.projection import AttachedProjection, ProjectionEngine
from noesium_stream.projection.attached import group_of
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.check import PurityCheck
from noesium_stream.projection.export import check_export, export
from noesium_stream.projection.folder import matching
from noesium_stream.projection.load import catalogue_for, load_projection
from noesium_stream.projection.rebuild import rebuild
from noesium_stream.projection.stored import current_version, describe, make_current, stored_projection

_LOOK_S: Final = 0.25


@click.command("project", no_args_is_help=True)
@click.argument("reference", metavar="MODULE:NAME")
@click.option("--once", is_flag=True, help="Catch up with the log, then end.")
@click.option(
    "--rebuild",
    "anew",
    is_flag=True,
    help="Fold everything again beside the state that is there, and let the new one take over; then end.",
)
@click.option("--verify", is_flag=True, help="With --rebuild: only if the new state equals the old one.")
@click.option(
    "--export",
    "target",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the state as SQLite (.db) or JSON lines (.jsonl) after catching up; then end.",
)
@click.option(
    "--on-error",
    type=click.Choice(("hold", "stop")),
    help="What an event does that cannot be folded: hold its key back, or stop. [default: as declared]",
)
@click.option(
    "--check",
    "checked",
    is_flag=True,
    help="Watch `key` and `apply`, call them several times, and end where they are not pure; slow.",
)
@log_option
@state_option
@asynchronous
async def project_command(
    reference: str,
    once: bool,
    anew: bool,
    verify: bool,
    target: Path | None,
    on_error: str | None,
    checked: bool,
    log_url: str | None,
    state_dir: Path | None,
) -> None:
    """Fold the log into local state, and follow it until Ctrl-C or SIGTERM.

    MODULE:NAME is a subclass of BaseProjection; `execution`, `cognitive` and `index` come with the package.
    Several processes share its partitions. Its state is read with `noesium state NAME`.
    """
    if verify and not anew:
        raise click.UsageError("--verify goes with --rebuild.")
    if checked and anew:
        raise click.UsageError("--check goes with --once, or with neither; not with --rebuild.")
    if target is not None:
        check_export(target)
    projection = load_projection(reference)
    if on_error is not None:
        projection.on_error = on_error  # type: ignore[misc]  # this instance's, not the class's
    loaded = settings(log_url)
    must_exist(loaded)
    folder = projections_folder(loaded, state_dir)
    log = await open_configured(loaded, catalogue_for(projection))
    try:
        describe(folder, projection, group_of(log, projection), reference)
        if anew:
            await _rebuild(log, projection, folder, verify=verify)
        elif once or target is not None:
            await _once(log, projection, folder, PurityCheck(projection) if checked else None)
        else:
            await _follow(log, projection, folder, PurityCheck(projection) if checked else None)
        if target is not None:
            stored = stored_projection(folder, projection.name, load_projection, projection.version)
            note(f"{export(stored, target):,} rows in {target}")
    finally:
        await log.close()


async def _once(log: EventLog, projection: AnyProjection, folder: Path, call: PurityCheck | None) -> None:
    with ProjectionEngine(log, folder, report=note, call=call) as engine:
        engine.register(projection.name, projection)
        manifests = await engine.catch_up(projection.name)
    if _is_older(projection, folder):
        _say_older(projection, folder)
    else:
        make_current(folder, projection)
    _say(projection, sum(m.events for m in manifests), len(manifests), sum(m.held for m in manifests))


async def _rebuild(log: EventLog, projection: AnyProjection, folder: Path, *, verify: bool) -> None:
    built = await rebuild(log, projection, folder, verify=verify, report=note)
    if verify:
        note(f"{built.compared:,} rows are the same")
    _say(projection, built.events, built.partitions, built.held)


def _say(projection: AnyProjection, events: int, partitions: int, held: int) -> None:
    letters = f", {held:,} dead letters" if held else ""
    note(f"{projection.name} v{projection.version}: {events:,} events in {partitions} partitions{letters}")


async def _follow(log: EventLog, projection: AnyProjection, folder: Path, call: PurityCheck | None) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    attached = AttachedProjection(log, projection, folder, report=note, call=call)
    async with attached:
        name = f"{projection.name} v{projection.version}"
        note(f"{name}: folds {log.url} into {folder}, process {os.getpid()}; Ctrl-C ends it")
        stopped = asyncio.create_task(asked.wait())
        ended = asyncio.create_task(attached.wait())
        current = asyncio.create_task(_take_over(log, attached, folder))
        try:
            waiting = {stopped, ended, current}
            while not (stopped.done() or ended.done()):
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in (stopped, ended, current):
                task.cancel()
    note("stopped")


async def _take_over(log: EventLog, attached: AttachedProjection, folder: Path) -> None:
    """Let readers take a newer version when it has folded what was on the log when it was attached."""
    projection = attached.projection
    stored = stored_projection(folder, projection.name, load_projection, projection.version)
    if stored.is_current():
        return
    if _is_older(projection, folder):
        _say_older(projection, folder)
        return
    ends = await _ends(log, projection)
    while not (attached.assignment and stored.has_reached(attached.assignment, ends)):  # noqa: ASYNC110
        # Other processes on this machine have a part in it; their files give no signal.
        await asyncio.sleep(_LOOK_S)
    if _is_older(projection, folder):
        return
    make_current(folder, projection)
    note(f"{projection.name} v{projection.version} has caught up, and takes over")


async def _ends(log: EventLog, projection: AnyProjection) -> dict[str, Mapping[int, int]]:
    """The ends of all that it folds, as soon as the log tells them."""
    while True:
        try:
            topics = [info.name for info in await log.topics()]
            return {topic: await log.end(topic) for topic in matching(topics, projection, log.topology)}
        except EventStoreError as error:
            if not (error.retriable or isinstance(error, TopicNotFoundError)):
                raise
            await asyncio.sleep(_LOOK_S)


def _is_older(projection: AnyProjection, folder: Path) -> bool:
    """Whether readers take a newer version: an old process that is started again must not turn that back."""
    return projection.version < current_version(folder / projection.name)


def _say_older(projection: AnyProjection, folder: Path) -> None:
    newer = current_version(folder / projection.name)
    note(
        f"readers take {projection.name} v{newer}; --rebuild lets v{projection.version} take over again, "
        "--version reads it"
    )
