"""`noesium erase`: destroys the key of a person, and searches for what would still be readable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.session import asynchronous, deciding_name, json_option, log_option, opened, settings
from noesium_stream.client.erasure import Erasure, erase
from noesium_stream.client.erasure.scan import Scanned
from noesium_stream.clock import SystemClock
from noesium_stream.escapes import escaped
from noesium_stream.event.envelope import AgentRef


@click.command("erase")
@click.argument("subject")
@click.option("--prove", is_flag=True, help="Search log, states and files afterwards (exit code 1: found).")
@click.option("--word", "words", metavar="TEXT", multiple=True, help="Look for this text, too. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Only say what is sealed, and what would stay readable.")
@click.option("--partly", is_flag=True, help="Destroy the key although something stays readable.")
@click.option("--reason", help="Why, for the event on the log.")
@click.option(
    "--state",
    "states",
    metavar="DIR",
    multiple=True,
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="A further folder with states of projections. Repeatable.",
)
@log_option
@json_option
@asynchronous
async def erase_command(
    subject: str,
    prove: bool,
    words: tuple[str, ...],
    dry_run: bool,
    partly: bool,
    reason: str | None,
    states: tuple[Path, ...],
    log_url: str | None,
    as_json: bool,
) -> None:
    """Erase a person: what was sealed with their key can never be read again.

    SUBJECT is a kind and an id, such as user:42. It is refused if something about them would stay readable, a
    run of theirs is open, or a process of this machine uses states. On each machine that has states of its
    own it is called once; the keys are destroyed by the first.
    """
    async with opened(log_url) as log:
        clock = SystemClock()
        producer = AgentRef(await deciding_name(log), "client", "local", clock.uuid7())
        done = await erase(
            log,
            settings(log_url).noesium.home,
            subject,
            producer,
            clock,
            reason=reason,
            words=words,
            states=states,
            partly=partly,
            dry_run=dry_run,
            prove=prove,
        )
    if as_json:
        out_json(_as_json(done, dry_run))
    else:
        _print(done, dry_run)
    if done.left or (done.scanned is not None and done.scanned.found):
        raise click.exceptions.Exit(FAILED)


def _print(done: Erasure, dry_run: bool) -> None:
    subject, count = escaped(done.subject), sum(done.records.values())
    for topic, number in done.records.items():
        out(f"{escaped(topic)}  {number:,} sealed")
    if dry_run:
        note(f"{subject} has {len(done.keys)} keys; {count:,} records would never be read again.")
    elif done.keys:
        note(f"{subject} is erased: {count:,} records can never be read again.")
    else:
        note(f"{subject} had been erased before; {count:,} records cannot be read.")
    if not dry_run:
        note(f"{done.cleaned} local states were removed; they are folded again when they are needed.")
    for one in done.left:
        note(f"readable: {escaped(one)}")
    if done.scanned is not None:
        _print_scan(done.scanned)


def _print_scan(scanned: Scanned) -> None:
    note(
        f"Looked for {scanned.texts} texts in {scanned.records:,} records of {len(scanned.topics)} topics "
        f"({scanned.record_bytes:,} bytes) and in {scanned.files:,} files ({scanned.file_bytes:,} bytes)."
    )
    for one in scanned.found:
        note(f"found: {escaped(one.place)} has {escaped(one.text)}")
    if not scanned.found:
        note("None of them was found.")


def _as_json(done: Erasure, dry_run: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "subject": done.subject,
        "dry_run": dry_run,
        "keys": done.keys,
        "destroyed_before": done.before,
        "records": done.records,
        "cleaned": done.cleaned,
        "readable": done.left,
    }
    scan = done.scanned
    if scan is not None:
        found["scanned"] = {
            "texts": scan.texts,
            "records": scan.records,
            "topics": sorted(scan.topics),
            "record_bytes": scan.record_bytes,
            "files": scan.files,
            "file_bytes": scan.file_bytes,
            "found": [one._asdict() for one in scan.found],
        }
    return found
