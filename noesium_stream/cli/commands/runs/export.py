"""`noesium export`: a run as a file that proves what it did."""

from __future__ import annotations

from pathlib import Path

import click

from noesium_stream.cli.output import note
from noesium_stream.cli.session import asynchronous, given_run, log_option, opened, settings
from noesium_stream.client import Client
from noesium_stream.client.proof.export import export_run
from noesium_stream.clock import SystemClock
from noesium_stream.event.signing import Signer


@click.command("export")
@click.argument("run_id", metavar="RUN", callback=given_run)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@log_option
@asynchronous
async def export_command(run_id: str, file: Path, log_url: str | None) -> None:
    """Write a run's journal to FILE, with the signatures of its records, for `noesium verify --offline`.

    A process with a signing key signs the file. A file that exists is replaced.
    """
    key = settings(log_url).noesium.signing_key
    signer = None if key is None else Signer.from_file(key)
    async with opened(log_url) as log, Client(log) as client:
        run = await client.get_run(run_id)
        count = await export_run(run, file, SystemClock(), signer)
    signed = "" if signer is None else f", signed with {signer.public_key_id}"
    note(f"wrote {count} records of {run.id} to {file}{signed}")
