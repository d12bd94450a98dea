"""`noesium guide`: the guides of the package."""

from __future__ import annotations

from importlib import import_module

import click

from noesium_stream.cli.guides import API, API_SUMMARY, GUIDES, guide_text, summary
from noesium_stream.cli.output import out_lines
from noesium_stream.cli.signals import synchronous


@click.command("guide")
@click.argument("name", required=False)
@synchronous
def guide_command(name: str | None) -> None:
    """Print a guide, or list the guides.

    Guides are Markdown. To read one in a pager: `noesium guide agent | less`. `noesium guide api` is the
    reference of all public names, made from the installed package.
    """
    if name is None:
        out_lines(_listed())
    elif name == API:
        # Imported here: it loads the whole package, which no other guide needs.
        out_lines(import_module("noesium_stream.cli.api_reference").api_reference().rstrip("\n"))
    elif name in GUIDES:
        out_lines(guide_text(name).rstrip("\n"))
    else:
        raise click.UsageError(f"There is no guide {name!r}. There are:\n{_listed()}")


def _listed() -> str:
    """Return one line for each guide: its name and what it is for."""
    width = max(map(len, GUIDES))
    listed = [*((name, summary(name)) for name in GUIDES), (API, API_SUMMARY)]
    return "\n".join(f"  {name:{width}}  {what}" for name, what in listed)
