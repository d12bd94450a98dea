"""`noesium security`: ACLs, certificates and users of a secured Kafka."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from noesium_stream.cli.output import note, out_json
from noesium_stream.cli.session import asynchronous, json_option, log_option, settings
from noesium_stream.cli.signals import synchronous
from noesium_stream.cli.table import table
from noesium_stream.config import Loaded
from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.policy import read_policy
from noesium_stream.log.broker.certificates import Authority
from noesium_stream.log.kafka.acls import PROJECTIONS, Acl, acls_of, add_user, apply_acls
from noesium_stream.log.kafka.settings import KafkaSettings, kafka_settings
from noesium_stream.log.topics import Topology
from noesium_stream.log.url import parse_url
from noesium_stream.private_files import make_folder

NEW_PASSWORD: Final = "NOESIUM_KAFKA_NEW_PASSWORD"
_OPERATOR: Final = "operator"


@click.group("security")
def security_command() -> None:
    """Prepare a Kafka that lets each name do what it has to, and no more."""


@security_command.command("acls")
@click.option("-a", "--agent", "agents", metavar="TYPE", multiple=True, help="An agent that no rule names.")
@click.option(
    "--user",
    "users",
    metavar="NAME=USER",
    multiple=True,
    help="The Kafka user of a name. [default: the name]",
)
@click.option("--projections", metavar="USER", help="The Kafka user of processes that fold the log.")
@click.option("--no-create", is_flag=True, help="Workers make no topics: an operator does.")
@click.option("--apply", "do_apply", is_flag=True, help="Create them on the log's brokers.")
@log_option
@json_option
@asynchronous
async def acls_command(
    agents: tuple[str, ...],
    users: tuple[str, ...],
    projections: str | None,
    no_create: bool,
    do_apply: bool,
    log_url: str | None,
    as_json: bool,
) -> None:
    """Print the ACLs that the policy needs on Kafka, or create them with --apply.

    The policy is the setting `policy`. `agent:TYPE` are the workers of an agent. ACLs that exist stay, and
    nothing is deleted; operators are super users of the brokers and need none.
    """
    loaded = settings(log_url)
    if loaded.noesium.policy is None:
        raise ConfigError(
            "There is no policy to make ACLs of.", hint="NOESIUM_POLICY names one: noesium guide secure"
        )
    named = dict(_pair(user) for user in users)
    if projections is not None:
        named[PROJECTIONS] = projections
    policy = read_policy(loaded.noesium.policy)
    found = acls_of(policy, _topology(loaded), agents=agents, users=named, create=not no_create)
    if do_apply:
        await asyncio.to_thread(apply_acls, _kafka(loaded), found)
        note(f"{len(found)} ACLs are on {loaded.shown_log}")
    elif as_json:
        out_json([acl._asdict() for acl in found])
    else:
        table(("user", "resource", "pattern", "name", "operations"), _rows(found))


@security_command.command("certificates")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host",
    "hosts",
    metavar="HOST",
    multiple=True,
    default=("localhost", "127.0.0.1"),
    show_default=True,
    help="A name or address of the broker. Repeatable.",
)
@click.option("--for", "names", metavar="NAME", multiple=True, help="A name of the policy. Repeatable.")
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long valid.")
@synchronous
def certificates_command(folder: Path, hosts: tuple[str, ...], names: tuple[str, ...], days: int) -> None:
    """Make an authority, the certificate of a broker, and one for each name and for the operator.

    DIR gets noesium-ca.pem and noesium-ca.key, server.pem, and NAME.pem and NAME.key. If the authority is
    there already, it signs further ones.
    """
    try:
        make_folder(folder)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}.") from error
    authority = Authority(folder, valid=timedelta(days=days))
    if not (folder / "server.pem").exists():
        authority.server(hosts, "broker")
    for name in dict.fromkeys((_OPERATOR, *names)):
        if name != _OPERATOR or not (folder / f"{_OPERATOR}.pem").exists():
            note(f"{name}: {authority.client(name)[0]}")


@security_command.command("user")
@click.argument("name", metavar="NAME")
@log_option
@asynchronous
async def user_command(name: str, log_url: str | None) -> None:
    """Give a Kafka user a password (SCRAM-SHA-512): that in NOESIUM_KAFKA_NEW_PASSWORD, or typed in."""
    password = os.environ.get(NEW_PASSWORD)
    if not password:
        if not sys.stdin.isatty():
            raise ConfigError(f"There is no password for {name}.", hint=f"Set {NEW_PASSWORD}.")
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    loaded = settings(log_url)
    await asyncio.to_thread(add_user, _kafka(loaded), name, password)
    note(f"{name} is let in by its password at {loaded.shown_log}")


def _kafka(loaded: Loaded) -> KafkaSettings:
    """The connection to the log's brokers.

    Raises:
        ConfigError: the log is not on Kafka.
    """
    url = parse_url(loaded.noesium.log)
    if url.scheme != "kafka":
        raise ConfigError(
            f"{loaded.shown_log} is not on Kafka, and has no ACLs and no users.",
            hint="Give the brokers with --log kafka://HOST:PORT or NOESIUM_LOG.",
        )
    return kafka_settings(url)


def _topology(loaded: Loaded) -> Topology:
    config = loaded.noesium
    return parse_url(config.log).topology(Topology(config.namespace, config.partitions))


def _pair(text: str) -> tuple[str, str]:
    name, equals, user = text.partition("=")
    if not (name and equals and user):
        raise click.UsageError(f"{text!r} is no NAME=USER.")
    return name, user


def _rows(found: Sequence[Acl]) -> list[tuple[str, ...]]:
    """One row per resource, with all operations on it."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for acl in found:
        rows.setdefault((acl.user, acl.resource, acl.pattern, acl.name), []).append(acl.operation)
    return [(*row, ", ".join(operations)) for row, operations in rows.items()]
