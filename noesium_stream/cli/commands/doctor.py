"""`noesium doctor`: what of settings, machine and log somebody has to do something about."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Final

import click
from humanize import naturalsize

from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import dim, out, out_json
from noesium_stream.cli.session import (
    asynchronous,
    json_option,
    log_option,
    must_exist,
    open_configured,
    settings,
)
from noesium_stream.client import Client
from noesium_stream.client.operate.doctor import Finding, examine
from noesium_stream.clock import SystemClock
from noesium_stream.config import Loaded
from noesium_stream.errors import NoesiumError
from noesium_stream.event.trust.policy import read_policy
from noesium_stream.log import EventLog
from noesium_stream.log.trust import own_key
from noesium_stream.log.url import parse_url

_LITTLE: Final = 1 << 30
_TOO_LITTLE: Final = 64 << 20
_SOON_MS: Final = timedelta(days=14) // timedelta(milliseconds=1)
_OTHERS: Final = 0o077


@click.command("doctor")
@log_option
@json_option
@asynchronous
async def doctor_command(log_url: str | None, as_json: bool) -> None:
    """Examine settings, machine and log, and say what to do.

    `problem`: something does not work. `warning`: somebody should look. Exit code 1 if there is a problem.
    Nothing is written. The journal of a partition that no worker reports on is read.
    """
    loaded = settings(log_url)
    found = [finding async for finding in _findings(loaded)]
    if as_json:
        out_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            out(f"{finding.level:<8} {finding.what}")
            for line in (finding.hint or "").splitlines():
                out(f"         {dim(line)}")
    if any(finding.level == "problem" for finding in found):
        raise click.exceptions.Exit(FAILED)


async def _findings(loaded: Loaded) -> AsyncIterator[Finding]:
    for finding in (*_of_disk(loaded), *_of_files(loaded), *_of_policy(loaded)):
        yield finding
    try:
        must_exist(loaded)
        log = await open_configured(loaded)
    except NoesiumError as error:
        yield Finding("problem", error.message, error.hint)
        return
    yield Finding("ok", f"{log.url} answers")
    try:
        yield await _of_key(log)
        async with Client(log) as client:
            async for finding in examine(client):
                yield finding
    except NoesiumError as error:
        yield Finding("problem", error.message, error.hint)
    finally:
        await log.close()


def _of_disk(loaded: Loaded) -> Iterator[Finding]:
    """Check the room where this machine's states and the embedded log are."""
    home = loaded.noesium.home
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    what = f"{naturalsize(free)} free at {home} (NOESIUM_HOME)"
    if free < _TOO_LITTLE:
        yield Finding("problem", what, "Make room: states and an embedded log cannot grow.")
    else:
        yield Finding("warning" if free < _LITTLE else "ok", what)


def _of_files(loaded: Loaded) -> Iterator[Finding]:
    """Check that nobody else can read private files."""
    config = loaded.noesium
    files = [] if config.signing_key is None else [config.signing_key.expanduser()]
    url = parse_url(config.log)
    if url.scheme == "sqlite":
        files.append(Path(url.path.removeprefix("/")).expanduser())
    for file in files:
        if file.exists() and file.stat().st_mode & _OTHERS:
            yield Finding("warning", f"{file} can be read or written by others", f"chmod 600 {file}")


def _of_policy(loaded: Loaded) -> Iterator[Finding]:
    if loaded.noesium.policy is None:
        return
    try:
        read_policy(loaded.noesium.policy)
    except NoesiumError as error:
        yield Finding("problem", error.message, error.hint)
    else:
        yield Finding("ok", f"the policy {loaded.noesium.policy} can be read")


async def _of_key(log: EventLog) -> Finding:
    """Check the key that this process signs with."""
    key = await own_key(log)
    if key is None:
        return Finding("ok", "this process signs nothing, and nothing has to be signed")
    names = ", ".join(sorted(key.speaks_for))
    if key.not_after_ms is not None and key.not_after_ms < SystemClock().now_ms() + _SOON_MS:
        return Finding(
            "warning",
            f"the key {key.key_id} of {names} ends within 14 days, or has ended",
            "noesium keys rotate --help",
        )
    return Finding("ok", f"the key {key.key_id} speaks for {names}")
