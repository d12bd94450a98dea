"""`noesium state`: what a projection knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.session import json_option, log_option, projections_folder, settings, state_option
from noesium_stream.projection.load import load_projection
from noesium_stream.projection.stored import StoredProjection, stored_projection


@click.command("state", no_args_is_help=True)
@click.argument("name")
@click.argument("key", required=False)
@click.option("--prefix", default="", metavar="TEXT", help="Only rows whose keys begin so.")
@click.option("--version", "version", type=click.IntRange(1), help="Another version than the current one.")
@log_option
@state_option
@json_option
def state_command(
    name: str,
    key: str | None,
    prefix: str,
    version: int | None,
    log_url: str | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Print a projection's state, or one row of it.

    It is read from this machine's state files, as of what was written last: at most a moment ago while
    `noesium project` runs.
    """
    folder = projections_folder(settings(log_url), state_dir)
    found = stored_projection(folder, name, load_projection, version)
    if key is None and not found.about.keyed:
        key = ""
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
    return json.dumps(state, ensure_ascii=False)
