"""`noesium schema`: the published schemas as files, generated from the code."""

from __future__ import annotations

from pathlib import Path

import click

from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.signals import synchronous
from noesium_stream.errors import ConfigError
from noesium_stream.event.schemas.compat import incompatible_changes
from noesium_stream.event.schemas.files import stale_schemas, write_schemas

_FOLDER = Path("schemas")
CHECK_FAILED = 1


@click.group("schema")
def schema_command() -> None:
    """Write and check the published schemas.

    They are the Avro envelope and one JSON Schema per event type and version.
    """


_dir_option = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=_FOLDER,
    show_default=True,
    help="Folder of the schemas.",
)


@schema_command.command("write")
@_dir_option
@synchronous
def write(directory: Path) -> None:
    """Write missing and stale files; print their names."""
    written = write_schemas(directory)
    for name in written:
        out(str(directory / name))
    note(f"{len(written)} files written" if written else f"{directory} is up to date")


@schema_command.command("check")
@_dir_option
@click.option(
    "--against",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also find changes against the schemas of this folder (an older release's) that break its readers.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
@click.pass_context
@synchronous
def check(ctx: click.Context, directory: Path, against: Path | None, as_json: bool) -> None:
    """Fail (exit code 1) if files are stale or a change is incompatible."""
    for folder in filter(None, (directory, against)):
        if not folder.is_dir():
            raise ConfigError(f"There is no folder {folder}.", hint="`noesium schema write` makes one.")
    stale = stale_schemas(directory)
    broken = [str(change) for change in incompatible_changes(against or directory)]
    if as_json:
        out_json({"stale": stale, "incompatible": broken})
    else:
        for name in stale:
            out(f"stale: {directory / name}")
        for change in broken:
            out(f"incompatible: {change}")
    if stale or broken:
        note(f"{len(stale)} stale files (see: noesium schema write), {len(broken)} incompatible changes")
        ctx.exit(CHECK_FAILED)
    note(f"{directory} is up to date" + (f" and compatible with {against}" if against else ""))
