"""`noesium dlq`: dead letters of projections (events) and of agents' inboxes (records)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from noesium_stream.cli.commands.projections import refused
from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import note, out, out_json, shorten
from noesium_stream.cli.session import (
    asynchronous,
    exists,
    json_option,
    log_option,
    must_exist,
    open_configured,
    projections_folder,
    settings,
    state_option,
)
from noesium_stream.cli.table import table
from noesium_stream.client.operate.dead_letters import DeadLetter
from noesium_stream.clock import to_rfc3339
from noesium_stream.errors import ConfigError, ProjectionError
from noesium_stream.log.topics import agent_name
from noesium_stream.projection.fold.dead_letters import Letter, advice_on, position_of
from noesium_stream.projection.fold.redrive import redrive_files
from noesium_stream.projection.load import catalogue_for, load_projection
from noesium_stream.projection.stored.stored_projection import (
    StoredProjection,
    open_stored_projection,
    stored_versions,
)
from noesium_stream.projection.versions.state_at import parse_at


@click.group("dlq")
def dlq_command() -> None:
    """List dead letters, and let them be taken again.

    If a projection's `apply` fails for an event, the event becomes a dead letter, and the later events of its
    key are held back, in order. Events of other keys go on. NAME is the projection's name.

    A record that an agent's worker cannot accept (it is unreadable or invalid) is skipped and kept in the
    dead letter topic. NAME is `agent:TYPE` then.
    """


@dlq_command.command("list")
@click.argument("name", required=False)
@click.option("--all", "decided", is_flag=True, help="Agents' letters that were sent again or dropped, too.")
@log_option
@state_option
@json_option
@asynchronous
async def list_command(
    name: str | None, decided: bool, log_url: str | None, state_dir: Path | None, as_json: bool
) -> None:
    """List dead letters of one projection or agent, or all.

    Of projections, only those on this machine are listed.
    """
    loaded = settings(log_url)
    folder = projections_folder(loaded, state_dir)
    agent_type = _agent_of(name)
    chosen: Sequence[StoredProjection] = ()
    if name is None:
        chosen = stored_versions(folder, load_projection, damaged=lambda error: note(error.message))
    elif agent_type is None:
        chosen = [open_stored_projection(folder, name)]
    of_agents: Sequence[DeadLetter] = ()
    if agent_type is not None or (name is None and exists(loaded)):
        must_exist(loaded)
        of_agents = await refused.refused(loaded, agent_type)
    of_agents = [letter for letter in of_agents if decided or letter.status == "open"]
    found = [(stored, path, letter) for stored in chosen for path, letter in stored.letters()]
    if as_json:
        of_projections = [_fields(stored, path, letter) for stored, path, letter in found]
        out_json([*of_projections, *map(refused.fields, of_agents)])
    elif not found and not of_agents:
        note("There are no dead letters.")
    else:
        table(
            ("of", "key", "position", "type", "why"),
            [*(_row(stored, path, letter) for stored, path, letter in found), *map(refused.row, of_agents)],
        )
        for advice in sorted({advice_on(letter) or "" for _, _, letter in found} - {""}):
            note(advice)


@dlq_command.command("show")
@click.argument("name")
@click.argument("position", metavar="TOPIC/PARTITION@OFFSET")
@log_option
@state_option
@asynchronous
async def show_command(name: str, position: str, log_url: str | None, state_dir: Path | None) -> None:
    """Print a dead letter: the reason, its headers or findings, and its record's bytes as text."""
    loaded = settings(log_url)
    agent_type = _agent_of(name)
    if agent_type is not None:
        must_exist(loaded)
        await refused.show(loaded, agent_type, position)
        return
    if parse_at(position).position is None:
        raise ConfigError(f"{position!r} is no position.", hint="Write TOPIC/PARTITION@OFFSET.")
    folder = projections_folder(loaded, state_dir)
    stored = open_stored_projection(folder, name)
    for path, letter in stored.letters():
        if position_of(path, letter) == position:
            for field, value in _fields(stored, path, letter).items():
                out(f"{field}: {value}")
            for header, data in letter.headers:
                out(f"header {header}: {(data or b'').decode(errors='backslashreplace')}")
            advice = advice_on(letter)
            if advice is not None:
                note(advice)
            out(f"value: {letter.value.decode(errors='backslashreplace')}")
            return
    note(f"The projection {name} has no dead letter at {position}.")
    raise click.exceptions.Exit(FAILED)


@dlq_command.command("redrive")
@click.argument("name")
@click.argument("key", nargs=-1)
@log_option
@state_option
@asynchronous
async def redrive_command(
    name: str, key: tuple[str, ...], log_url: str | None, state_dir: Path | None
) -> None:
    """Take dead letters again, in order: all, or some.

    Letters of an agent are sent to its inbox again, each once. A KEY is a letter's position
    (TOPIC/PARTITION@OFFSET). A letter that cannot be sent stays (exit code 1).

    Letters of a projection are folded again; a running `noesium project` does it itself, with the code that
    it was started with. An event that fails again stays a dead letter and holds back the later events of its
    key. In that case, or if a KEY has no dead letters, the exit code is 1. With keys only their letters are
    counted.
    """
    loaded = settings(log_url)
    must_exist(loaded)
    agent_type = _agent_of(name)
    if agent_type is not None:
        await refused.decide(loaded, agent_type, key, drop=False)
        return
    folder = projections_folder(loaded, state_dir)
    stored = open_stored_projection(folder, name)
    if stored.about.reference is None:
        raise ProjectionError(
            f"The code of the projection {name} is not known: it was attached by a program.",
            hint="Let that program call `redrive`, or attach it with: noesium project MODULE:NAME",
        )
    projection = load_projection(stored.about.reference).of_version(stored.about.version)
    before = _count(stored, key)
    unknown = [one for one in key if not before[one]]
    for one in unknown:
        note(f"The key {one!r} of {name} has no dead letters.")
    log = await open_configured(loaded, catalogue_for(projection))
    try:
        holders = Counter(path for path, _ in stored.letters()) if before else ()
        running = await redrive_files(log, projection, holders, key or None)
    finally:
        await log.close()
    stay, there = _count(stored, key).total(), before.total()
    note(f"{there - stay:,} events folded, {stay:,} dead letters stay")
    if running and stay and stay >= there:
        note("Running processes have tried it with the code that they were started with: start them anew.")
    if stay or unknown:
        raise click.exceptions.Exit(FAILED)


@dlq_command.command("drop")
@click.argument("name", metavar="agent:TYPE")
@click.argument("position", metavar="TOPIC/PARTITION@OFFSET", nargs=-1, required=True)
@click.option("--reason", help="Why; it is recorded.")
@log_option
@asynchronous
async def drop_command(name: str, position: tuple[str, ...], reason: str | None, log_url: str | None) -> None:
    """Decide that dead letters of an agent are not wanted; that is recorded, and the records stay.

    Letters of a projection cannot be dropped: its state would differ from that of a replay. Change the
    projection's code so that it ignores these events.
    """
    loaded = settings(log_url)
    must_exist(loaded)
    agent_type = _agent_of(name)
    if agent_type is None:
        raise ConfigError(
            f"{name} names no agent: what is dropped are letters of an agent's inbox.",
            hint="Write agent:TYPE. What a projection is to pass over, its code has to say.",
        )
    await refused.decide(loaded, agent_type, position, drop=True, reason=reason)


def _agent_of(name: str | None) -> str | None:
    """Return the agent type if NAME is `agent:TYPE`."""
    if name is None or not name.startswith(refused.PREFIX):
        return None
    return agent_name(name.removeprefix(refused.PREFIX))


def _count(stored: StoredProjection, keys: tuple[str, ...]) -> Counter[str | None]:
    """Count dead letters by key: of all keys, or of these."""
    return Counter(letter.key for _, letter in stored.letters() if not keys or letter.key in keys)


def _fields(stored: StoredProjection, path: Path, letter: Letter) -> dict[str, object]:
    return {
        "projection": stored.about.name,
        "version": stored.about.version,
        "key": letter.key,
        "position": position_of(path, letter),
        "event_type": letter.event_type,
        "event_id": letter.event_id,
        "error_type": letter.error_type,
        "reason": letter.reason,
        "where": letter.where,
        "logged": to_rfc3339(letter.timestamp_ms),
    }


def _row(stored: StoredProjection, path: Path, letter: Letter) -> tuple[str, str, str, str, str]:
    why = letter.why or "waits behind another one"
    name = f"{stored.about.name} v{stored.about.version}"
    key = "none" if letter.key is None else letter.key
    return name, key, position_of(path, letter), letter.event_type, shorten(why, 120)
