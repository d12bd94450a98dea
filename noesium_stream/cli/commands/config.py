"""`noesium config`: the settings in force, and where each value came from."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from noesium_stream.cli.misspelt import note_misspelt_variables
from noesium_stream.cli.output import out_json
from noesium_stream.cli.signals import synchronous
from noesium_stream.cli.table import table
from noesium_stream.config import Loaded, load_all
from noesium_stream.errors import LogUrlError
from noesium_stream.log.url import parse_url


@click.command("config")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
@synchronous
def config_command(as_json: bool) -> None:
    """Print the settings in force and where each came from.

    An option beats a NOESIUM_* variable, which beats noesium.toml (or [tool.noesium] in pyproject.toml) of
    the current folder, which beats the default. Secrets are hidden.
    """
    loaded = load_all()
    note_misspelt_variables()
    _check_log(loaded)
    settings = loaded.settings()
    if as_json:
        out_json([asdict(setting) for setting in settings])
        return
    rows = [
        (setting.name, _shown(setting.value), setting.source, setting.variable, setting.description)
        for setting in settings
    ]
    table(("setting", "value", "from", "variable", "what it is"), rows)


def _check_log(loaded: Loaded) -> None:
    """Refuse a log URL that no command could open.

    Raises:
        LogUrlError: the URL is not valid; the error names its source.
    """
    try:
        parse_url(loaded.noesium.log)
    except LogUrlError as error:
        raise LogUrlError(f"{loaded.sources['log']}: {error.message}", hint=error.hint) from error


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
