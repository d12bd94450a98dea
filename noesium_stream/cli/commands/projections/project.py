"""`noesium project`: a process that folds the log into local state."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

import click

from noesium_stream.cli.commands.projections.letters import say_letter, say_new_letters
from noesium_stream.cli.commands.projections.shares import living, processes
from noesium_stream.cli.commands.projections.takeover import say_older, say_shared, take_over
from noesium_stream.cli.commands.projections.unmatched import say_unknown_types, say_unmatched
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
from noesium_stream.cli.signals import break_off
from noesium_stream.clock import SystemClock
from noesium_stream.errors import (
    StateBusyError,
    StateFileError,
)
from noesium_stream.log import EventLog
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.group.member import group_of
from noesium_stream.projection.load import catalogue_for, load_projection
from noesium_stream.projection.purity_check import PurityCheck
from noesium_stream.projection.rebuild import check_folded, rebuild
from noesium_stream.projection.stored.export import check_export, export
from noesium_stream.projection.stored.stored_projection import (
    StoredProjection,
    describe,
    make_current,
    open_stored_projection,
)
from noesium_stream.projection.versions.open_migrated import migrate

TERMINATED: Final = 143


@click.command("project", no_args_is_help=True)
@click.argument("reference", metavar="MODULE:NAME")
@click.option("--once", is_flag=True, help="Catch up with the log, then end.")
@click.option(
    "--rebuild",
    "anew",
    is_flag=True,
    help="Fold everything again beside the state that is there, and let the new one take over; then end.",
)
@click.option(
    "--migrate",
    "migrated",
    is_flag=True,
    help="Take over the state of the version before (`previous_version`), as of now, instead of folding "
    "everything again, and say so on the log; then end.",
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
    help="What an event does that cannot be folded: hold its key back, or stop. [default: as declared; with "
    "--rebuild: stop]",
)
@click.option(
    "--check",
    "checked",
    is_flag=True,
    help="Watch `key` and `apply`, call them several times, and end where they are not pure; first on the "
    "events that are folded already; slow.",
)
@log_option
@state_option
@asynchronous
async def project_command(
    reference: str,
    once: bool,
    anew: bool,
    migrated: bool,
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

    Events that it cannot fold become dead letters, which are reported and leave the exit code 0; with
    `--on-error stop` the first one ends it with 1, and so it does with --rebuild, where the old state stays,
    unless `--on-error hold` is given. With --once, --migrate, --rebuild or --export the exit
    code is 143 after SIGTERM and 130 after Ctrl-C, if it had not caught up.
    """
    if verify and not anew:
        raise click.UsageError("--verify goes with --rebuild.")
    if migrated and anew:
        raise click.UsageError("--migrate goes on from the older state, and --rebuild from the first event.")
    if checked and anew:
        raise click.UsageError(
            "--check goes with --once, with --migrate, or with neither; not with --rebuild."
        )
    if target is not None:
        check_export(target)
    projection = load_projection(reference)
    if on_error is not None:
        projection.on_error = on_error  # type: ignore[misc]  # this instance's, not the class's
    loaded = settings(log_url)
    must_exist(loaded)
    folder = projections_folder(loaded, state_dir)
    log = await open_configured(loaded, catalogue_for(projection))
    say_unknown_types(projection, log.catalogue.types())
    call = PurityCheck(projection) if checked else None
    if not (once or anew or migrated or target is not None):
        try:
            say_unmatched(projection, await log.layout(), log.topology)
            await _check_folded(log, projection, folder, call)
            _describe(log, projection, folder, reference)
            await _follow(log, projection, folder, call)
        finally:
            await log.close()
        return
    async with _to_its_end(log):
        say_unmatched(projection, await log.layout(), log.topology, end=True)
        if anew:
            await _rebuild(log, projection, folder, reference, verify=verify, hold=on_error == "hold")
        else:
            await _check_folded(log, projection, folder, call)
            if migrated:
                await _migrate(log, projection, folder, call)
            _describe(log, projection, folder, reference)
            await _once(log, projection, folder, call, as_it_is=target is not None and not (once or migrated))
        if target is not None:
            stored = open_stored_projection(folder, projection.name, projection.version)
            _export(stored, target)


def _export(stored: StoredProjection, target: Path) -> None:
    try:
        note(f"{export(stored, target):,} rows in {target}")
    except StateFileError as error:
        error.hint = stored.how_to_mend
        raise


def _describe(log: EventLog, projection: AnyProjection, folder: Path, reference: str) -> None:
    if describe(folder, projection, group_of(log, projection), reference):
        note(
            f"the code of {projection.name} v{projection.version} has changed since this state was folded: "
            "count `version` up, or --rebuild"
        )


@asynccontextmanager
async def _to_its_end(log: EventLog) -> AsyncIterator[None]:
    """Run work that SIGTERM interrupts with a special exit code, and close the log at the end.

    A signal that comes after the work is done has no effect.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    told = done = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if done:
            return
        told = True
        task.cancel()
        loop.call_soon_threadsafe(lambda: None)  # wake the event loop

    before = signal.signal(signal.SIGTERM, stop)
    try:
        try:
            yield
        except BaseException:
            await log.close()
            raise
        done = True
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # let a signal of the last steps be handled
                await log.close()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        if not told:
            raise
        task.uncancel()
        note("stopped before it had caught up; what was folded is kept")
        raise click.exceptions.Exit(TERMINATED) from None
    finally:
        done = True
        if before is not break_off:  # else no work is left to interrupt, and the process ends
            signal.signal(signal.SIGTERM, before)


async def _once(
    log: EventLog, projection: AnyProjection, folder: Path, call: PurityCheck | None, *, as_it_is: bool
) -> None:
    stored = open_stored_projection(folder, projection.name, projection.version)
    before = _cursors(stored)
    try:
        with ProjectionEngine(log, folder, report=note, call=call) as engine:
            engine.register(projection.name, projection)
            manifests = await engine.catch_up(projection.name)
    except StateBusyError:
        if not as_it_is or not before:
            raise
        note(
            f"{projection.name} v{projection.version} is followed by another process: it is "
            "exported as it is, not caught up here"
        )
        return
    if not make_current(folder, projection, unless_older=True):
        say_older(projection, folder)
    _say(projection, sum(m.events for m in manifests), len(manifests), sum(m.held for m in manifests))
    if any(manifest.events for manifest in manifests) and stored.is_empty():
        note("  there is no row: `key` or `apply` has returned None for all of them; is a `return` missing?")
    if any(manifest.held for manifest in manifests):
        _say_first_letter(stored, before)


async def _check_folded(
    log: EventLog, projection: AnyProjection, folder: Path, call: PurityCheck | None
) -> None:
    """With --check: check what was folded before, too; the state stays."""
    if call is None:
        return
    count = await check_folded(log, projection, folder, call)
    if count:
        note(f"{count:,} events that were folded before are checked: `key` and `apply` are pure on them")


def _cursors(stored: StoredProjection) -> dict[str, int]:
    return {path.name: cursor for path, cursor in stored.cursors()}


def _say_first_letter(stored: StoredProjection, before: Mapping[str, int]) -> None:
    """Print why the first new dead letter of this catch-up was not folded."""
    for path, letter in stored.letters():
        if letter.reason is not None and letter.offset >= before.get(path.name, 0):
            say_letter(stored.about.name, path, letter)
            return


async def _migrate(log: EventLog, projection: AnyProjection, folder: Path, call: PurityCheck | None) -> None:
    name = f"{projection.name} v{projection.version}"
    others = living(await log.members(group_of(log, projection)))
    if others:
        raise StateBusyError(
            f"{name} is folded by {processes(others)} already, and would go on as it began.",
            hint="Stop it first.",
        )
    if await migrate(log, projection, folder, SystemClock(), call):
        assert projection.previous_version is not None
        older = f"v{projection.previous_version.version}"
        note(f"{name} takes over the state of {older}: projection.migrated is on the log")
    else:
        note(f"the log says already where {name} begins")


async def _rebuild(
    log: EventLog, projection: AnyProjection, folder: Path, reference: str, *, verify: bool, hold: bool
) -> None:
    group = group_of(log, projection)
    describe(folder, projection, group, reference)
    built = await rebuild(log, projection, folder, verify=verify, report=note, hold=hold)
    _say(projection, built.events, built.partitions, built.held)
    if built.replaced:
        describe(folder, projection, group, reference, anew=True)
        if built.held:
            _say_first_letter(open_stored_projection(folder, projection.name, projection.version), {})
    else:
        name = f"{projection.name} v{projection.version}"
        note(f"{name} is followed by another process: its state, which is the same, stays")


def _say(projection: AnyProjection, events: int, partitions: int, held: int) -> None:
    letters = f", {held:,} dead letter{'' if held == 1 else 's'}" if held else ""
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
        current = asyncio.create_task(take_over(log, attached, folder))
        sharing = asyncio.create_task(say_shared(log, attached))
        letters = asyncio.create_task(say_new_letters(attached))
        try:
            waiting = {stopped, ended, current, sharing, letters}
            while not (stopped.done() or ended.done()):
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in (stopped, ended, current, sharing, letters):
                task.cancel()
    note("stopped")
