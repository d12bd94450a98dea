"""`noesium state`: the state of a projection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from noesium_stream.cli.commands.projections.shares import elsewhere
from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import json_text, note, out, out_json
from noesium_stream.cli.session import (
    asynchronous,
    json_option,
    log_option,
    must_exist,
    open_configured,
    opened,
    projections_folder,
    settings,
    state_option,
)
from noesium_stream.clock import SystemClock
from noesium_stream.config import Loaded
from noesium_stream.errors import NoesiumError, ProjectionError, StateFileError
from noesium_stream.projection.load import catalogue_for, load_projection
from noesium_stream.projection.stored.stored_projection import StoredProjection, open_stored_projection
from noesium_stream.projection.versions.state_at import parse_at, state_at

_PATIENCE_S: Final = 2.0
"""How long to wait for the log to tell which other processes fold, in seconds."""


@click.command("state", no_args_is_help=True)
@click.argument("name")
@click.argument("key", required=False)
@click.option("--prefix", default="", metavar="TEXT", help="Only rows whose keys begin so.")
@click.option(
    "--at",
    "moment",
    metavar="WHEN",
    help="As it was: TOPIC/PARTITION@OFFSET (that partition, which has seen it), or a time of the log "
    "(2026-03-01T12:00:00Z).",
)
@click.option("--version", "version", type=click.IntRange(1), help="Another version than the current one.")
@log_option
@state_option
@json_option
@asynchronous
async def state_command(
    name: str,
    key: str | None,
    prefix: str,
    moment: str | None,
    version: int | None,
    log_url: str | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Print a projection's state, or one row of it.

    It is read from this machine's state files, as they were written last: a moment ago while
    `noesium project` runs.
    """
    at = None if moment is None else parse_at(moment)
    folder = projections_folder(settings(log_url), state_dir)
    found = open_stored_projection(folder, name, version)
    if key is None and not found.about.keyed:
        key = ""
    if at is None:
        try:
            _print(found, key, prefix, as_json)
        except StateFileError as error:
            error.hint = error.hint or found.how_to_mend
            raise
        finally:
            await _say_elsewhere(settings(log_url), found)
        return
    if at.time_ms is not None and at.time_ms > SystemClock().now_ms():
        note(f"{moment} is still to come: this is the state as of now.")
    if found.about.reference is None:
        raise ProjectionError(
            f"The code of the projection {name} is not known: it was attached by a program.",
            hint="Attach it with: noesium project MODULE:NAME",
        )
    projection = load_projection(found.about.reference).of_version(found.about.version)
    if projection.version != found.about.version:
        raise ProjectionError(
            f"{found.about.reference} is version {projection.version} now, and the state is of version "
            f"{found.about.version}: an earlier state is folded with the code that made it.",
            hint="Attach the new version first, or name it: --version",
        )
    async with (
        opened(log_url, catalogue_for(projection)) as log,
        state_at(log, projection, found, at, key=key, load=load_projection) as past,
    ):
        _print(past, key, prefix, as_json)


async def _say_elsewhere(loaded: Loaded, found: StoredProjection) -> None:
    """Print which partitions other processes have, if the log answers: the state is useful without it."""
    with suppress(NoesiumError, TimeoutError):
        must_exist(loaded)
        async with asyncio.timeout(_PATIENCE_S):
            log = await open_configured(loaded)
            try:
                sentence = await elsewhere(log, found)
            finally:
                await log.close()
        if sentence is not None:
            note(sentence)


def _print(found: StoredProjection, key: str | None, prefix: str, as_json: bool) -> None:
    if key is not None:
        _one(found, key, as_json)
    elif as_json:
        out_json(dict(found.rows(prefix)))
    else:
        for row, state in found.rows(prefix):
            out(f"{row}\t{_line(state)}")


def _one(found: StoredProjection, key: str, as_json: bool) -> None:
    state = found.get(key)
    if state is None:
        what = f"no row {key!r}" if found.about.keyed else "no state yet"
        note(f"{found.about.name} v{found.about.version} has {what}.")
        raise click.exceptions.Exit(FAILED)
    if as_json or isinstance(state, dict | list):
        out_json(state)
    else:
        out(_line(state))


def _line(state: Any) -> str:
    return json_text(state)
