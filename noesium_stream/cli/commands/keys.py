"""`noesium keys`: makes keys for signatures, and says which of them a log trusts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.cli.output import note, out_json
from noesium_stream.cli.session import asynchronous, json_option, opened, shared_log_option
from noesium_stream.cli.signals import synchronous
from noesium_stream.cli.table import table
from noesium_stream.client.operate.keys import ListedKey, list_keys, revoke_key, trust_keys
from noesium_stream.clock import SystemClock, to_rfc3339
from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.key_files import (
    MAX_FILE_BYTES,
    PASSWORD,
    moment_ms,
    parse_public_keys,
    public_entries,
    read_public_keys,
    write_private_key,
)
from noesium_stream.event.trust.trusted_key import TrustedKey, check_key_id, checked_principals

_DAY_MS: Final = 86_400_000

_out_option = click.option(
    "--out",
    "path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the private key goes; the file must not exist. [default: ID.key]",
)


@click.group("keys")
def keys_command() -> None:
    """Make keys for signatures, and say which of them a log trusts.

    A private key stays with who signs. An operator, whose key speaks for everybody (`*`), signs what `trust`,
    `revoke` and `rotate` write to the log.
    """


@keys_command.command("new")
@click.argument("key_id", metavar="ID")
@click.option(
    "--for",
    "names",
    metavar="NAME",
    multiple=True,
    required=True,
    help="A name that it may speak for: alice, agent:TYPE, role:NAME, or * for everybody. Repeatable.",
)
@click.option("--until", metavar="TIME", help="When it ends to count: 2027-01-01T00:00:00Z.")
@_out_option
@synchronous
def new_command(key_id: str, names: tuple[str, ...], until: str | None, path: Path | None) -> None:
    """Make a key: the private half goes to a file, the public half is printed as JSON.

    The private key is encrypted if NOESIUM_KEY_PASSWORD is set. What is printed is what `trust` reads, and
    what a file of public keys has.
    """
    check_key_id(key_id)
    until_ms = None if until is None else moment_ms(until, "--until")
    key = _make(key_id, frozenset(names), until_ms, path)
    out_json(public_entries([key]))


@keys_command.command("trust")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@shared_log_option
@asynchronous
async def trust_command(path: Path, log_url: str | None) -> None:
    """Let the log trust the public keys in FILE, as `noesium keys new` prints them; - for standard input.

    A log in a file that does not exist yet is made.
    """
    if str(path) == "-":
        keys = parse_public_keys(sys.stdin.buffer.read(MAX_FILE_BYTES), "standard input")
    else:
        keys = read_public_keys(path)
    async with opened(log_url, make=True) as log:  # nobody can write to a log before it trusts a key
        new = await trust_keys(log, SystemClock(), keys.values())
    for key in new:
        note(f"{key.key_id} is trusted for {', '.join(sorted(key.speaks_for))}")
    if not new:
        note("the log trusts all of them already")


@keys_command.command("list")
@shared_log_option
@json_option
@asynchronous
async def list_command(log_url: str | None, as_json: bool) -> None:
    """List the keys of the file of public keys and of the log: whose they are, and whether they count."""
    async with opened(log_url) as log:
        found = await list_keys(log, SystemClock())
    if as_json:
        out_json([_fields(listed) for listed in found])
    else:
        table(("key", "speaks for", "from", "until", "status", "said by"), map(_row, found))


@keys_command.command("revoke")
@click.argument("key_id", metavar="ID")
@click.option(
    "--since",
    metavar="TIME",
    help="What it signed counts no more from then on: 2026-03-01T12:00:00Z. [default: now]",
)
@click.option("--reason", help="Why; it is recorded.")
@shared_log_option
@asynchronous
async def revoke_command(key_id: str, since: str | None, reason: str | None, log_url: str | None) -> None:
    """Let the log trust a key no more.

    Records count by when the log took them. What workers have accepted already stays accepted.
    """
    from_ms = None if since is None else moment_ms(since, "--since")
    async with opened(log_url) as log:
        await revoke_key(log, SystemClock(), key_id, from_ms, reason)
    note(f"{key_id} is revoked")


@keys_command.command("rotate")
@click.argument("key_id", metavar="ID")
@click.argument("new_id", metavar="NEW")
@click.option(
    "--overlap",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    metavar="DAYS",
    help="How long the old key still counts.",
)
@_out_option
@shared_log_option
@asynchronous
async def rotate_command(
    key_id: str, new_id: str, overlap: float, path: Path | None, log_url: str | None
) -> None:
    """Make the key NEW for the names of ID, let the log trust it, and revoke ID after a time.

    Give the new private key to whoever signs with ID before that time ends.
    """
    check_key_id(new_id)
    clock = SystemClock()
    async with opened(log_url) as log:
        known = {listed.key.key_id: listed.key for listed in await list_keys(log, clock)}
        if key_id not in known:
            raise ConfigError(f"The log has no key {key_id}.", hint="See: noesium keys list")
        await trust_keys(log, clock, ())  # who may not do this makes no key
        key = _make(new_id, known[key_id].speaks_for, None, path)
        await trust_keys(log, clock, [key])
        from_ms = clock.now_ms() + round(overlap * _DAY_MS)
        await revoke_key(log, clock, key_id, from_ms, f"rotated to {new_id}")
    note(f"{new_id} is trusted; {key_id} counts until {to_rfc3339(from_ms)}")


def _make(key_id: str, names: frozenset[str], until_ms: int | None, path: Path | None) -> TrustedKey:
    private = Ed25519PrivateKey.generate()
    key = replace(TrustedKey(key_id, private.public_key(), checked_principals(names)), not_after_ms=until_ms)
    path = path or Path(f"{key_id.replace('/', '_')}.key")
    how = (
        "encrypted" if write_private_key(path, key_id, private) else f"not encrypted: set {PASSWORD} for that"
    )
    note(f"the private key is in {path} ({how})")
    return key


def _row(listed: ListedKey) -> tuple[str, ...]:
    key = listed.key
    return (
        key.key_id,
        ", ".join(sorted(key.speaks_for)),
        _time(key.not_before_ms),
        _time(min((ms for ms in (key.not_after_ms, key.revoked_ms) if ms is not None), default=None)),
        listed.status,
        "file" if listed.said_at is None else f"registry/0/{listed.said_at}",
    )


def _fields(listed: ListedKey) -> dict[str, Any]:
    key = listed.key
    entry = public_entries([key])[key.key_id]
    revoked = None if key.revoked_ms is None else to_rfc3339(key.revoked_ms)
    return {
        "id": key.key_id,
        **entry,
        "revoked": revoked,
        "status": listed.status,
        "registry_offset": listed.said_at,
    }


def _time(at_ms: int | None) -> str:
    return "" if at_ms is None else to_rfc3339(at_ms)[:19].replace("T", " ")
