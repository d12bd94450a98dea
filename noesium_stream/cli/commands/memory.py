"""`noesium memory`: what is remembered, why, since when; forget a key, retract a source."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import json_text, note, out, out_json
from noesium_stream.cli.session import (
    asynchronous,
    deciding_name,
    given_run,
    json_option,
    log_option,
    opened,
    settings,
)
from noesium_stream.cli.table import table
from noesium_stream.client import Client
from noesium_stream.client.operate.memory_diff import NOTHING, memory_diff
from noesium_stream.client.operate.replay import recording
from noesium_stream.clock import SystemClock, to_rfc3339
from noesium_stream.errors import ConfigError
from noesium_stream.escapes import escaped
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log.port import EventLog, Position
from noesium_stream.memory import MemoryFilter, MemoryManager, memory_of
from noesium_stream.memory.fact import Fact, unbelieved
from noesium_stream.memory.item import MemoryItem
from noesium_stream.memory.queries import (
    Because,
    derived_from,
    history_of_key,
    is_source,
    retractions,
    scopes_of,
    status_of,
    why,
)

_SHOWN: Final = 60
_LONGEST_SOURCE: Final = 200
_POSITION: Final = re.compile(r"([A-Za-z0-9._-]{1,249})/([0-9]{1,9})@([0-9]{1,18})")
_F = TypeVar("_F", bound=Callable[..., Any])


def _scope_option(command: _F) -> _F:
    return click.option(
        "--scope",
        metavar="SCOPE",
        default=None,
        help="Whose memory: shared, agent:TYPE, user:NAME, session:ID or tenant:NAME. "
        "[default: the only one that there is]",
    )(command)


@click.group("memory")
def memory_command() -> None:
    """Show what is remembered, and why; forget a key, retract a source."""


@memory_command.command("list")
@click.argument("prefix", default="")
@_scope_option
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="Most keys.")
@log_option
@json_option
@asynchronous
async def list_command(
    prefix: str, scope: str | None, limit: int, log_url: str | None, as_json: bool
) -> None:
    """List what is remembered now, by scope and key; without --scope in all scopes.

    PREFIX is how the keys begin.
    """
    async with opened(log_url) as log:
        memory = await _memory(log, log_url)
        scopes = [scope] if scope is not None else scopes_of(memory.durable.store)
        found = await memory.query(MemoryFilter(scopes, prefix, limit=limit)) if scopes else []
    under = f" under {escaped(prefix)}" if prefix else ""
    _print_items(found, as_json, f"Nothing is remembered{under}.")


@memory_command.command("show")
@click.argument("key")
@_scope_option
@log_option
@json_option
@asynchronous
async def show_command(key: str, scope: str | None, log_url: str | None, as_json: bool) -> None:
    """Print what is remembered under a key now, and what contradicts it (exit code 1: nothing)."""
    async with opened(log_url) as log:
        memory = await _memory(log, log_url, scope, key)
        item = await memory.durable.recall(key)
    _print_item(key, item, as_json)


@memory_command.command("as-of")
@click.argument("moment")
@click.argument("key", required=False)
@_scope_option
@log_option
@json_option
@asynchronous
async def as_of_command(
    moment: str, key: str | None, scope: str | None, log_url: str | None, as_json: bool
) -> None:
    """Print what was remembered at a time, by what had been written and retracted by then.

    MOMENT is a time such as 2026-11-24T12:00:00Z, UTC without an offset; or the position of a record, as
    TOPIC/PARTITION@OFFSET: when its event was the last one. Without KEY all keys are listed, in all scopes or
    in that of --scope.
    """
    at = _position(moment) or _moment(moment)
    async with opened(log_url) as log:
        memory = await _memory(log, log_url, scope, key)
        if key is not None:
            items = await memory.as_of(at, key)
        else:
            scopes = [scope] if scope is not None else scopes_of(memory.durable.store)
            items = [item for one in scopes for item in await memory.at(one).as_of(at)]
    if key is not None:
        _print_item(key, items[0] if items else None, as_json)
    else:
        _print_items(
            sorted(items, key=lambda item: (item.scope, item.key)), as_json, "Nothing was remembered."
        )


@memory_command.command("diff")
@click.argument("left_id", metavar="RUN", callback=given_run)
@click.argument("right_id", metavar="RUN", callback=given_run)
@log_option
@json_option
@asynchronous
async def diff_command(left_id: str, right_id: str, log_url: str | None, as_json: bool) -> None:
    """List the memories that two runs saw or wrote differently (exit code 1: there are some).

    Ids and times do not count. A fork is compared with the steps that it shares with its origin.
    """
    async with opened(log_url) as log, Client(log) as client:
        left = await recording(await client.get_run(left_id))
        right = await recording(await client.get_run(right_id))
    found = memory_diff(left, right)
    if as_json:
        out_json([one._asdict() for one in found])
    elif found:
        rows = [(one.kind, one.scope, one.key, _values(one.left), _values(one.right)) for one in found]
        table(("what", "scope", "key", left.run_id[-12:], right.run_id[-12:]), rows)
    else:
        note("Both runs saw and wrote the same.")
    if found:
        raise click.exceptions.Exit(FAILED)


@memory_command.command("history")
@click.argument("key")
@_scope_option
@log_option
@json_option
@asynchronous
async def history_command(key: str, scope: str | None, log_url: str | None, as_json: bool) -> None:
    """List all that was ever written to a key, the newest first, and what became of it."""
    async with opened(log_url) as log:
        store = (memory := await _memory(log, log_url, scope, key)).durable.store
        facts = history_of_key(store, memory.durable.scope, key)
        states = [status_of(store, fact) for fact in facts]
    if as_json:
        out_json([{**_fact_json(fact), "status": state} for fact, state in zip(facts, states, strict=True)])
    elif facts:
        rows = [
            (to_rfc3339(fact.at_ms), state, _value(fact), _by(fact), ", ".join(fact.sources) or "-")
            for fact, state in zip(facts, states, strict=True)
        ]
        table(("at", "status", "value", "by", "from"), rows)
    else:
        _nothing(key)


@memory_command.command("why")
@click.argument("key")
@_scope_option
@log_option
@json_option
@asynchronous
async def why_command(key: str, scope: str | None, log_url: str | None, as_json: bool) -> None:
    """Say why a key has its value: who wrote it when and where, what it comes from, what it replaced."""
    async with opened(log_url) as log:
        memory = await _memory(log, log_url, scope, key)
        lines = why(memory.durable.store, memory.durable.scope, key)
    if as_json:
        out_json(
            [
                {**_fact_json(one.fact), "depth": one.depth, "role": one.role, "status": one.status}
                for one in lines
            ]
        )
    elif not lines:
        _nothing(key)
    for one in lines if not as_json else ():
        out(_because(one))


@memory_command.command("forget")
@click.argument("key")
@_scope_option
@click.option("--reason", help="Why, for the history.")
@log_option
@asynchronous
async def forget_command(key: str, scope: str | None, reason: str | None, log_url: str | None) -> None:
    """Forget a key: it is not shown any more. Its history stays on the log."""
    async with opened(log_url) as log:
        memory = await _memory(log, log_url, scope, key)
        if await memory.durable.recall(key) is None:
            _nothing(key)
        await memory.delete(key, reason=reason)
    note(f"{escaped(key)} of {escaped(memory.durable.scope)} is forgotten.")


@memory_command.command("retract")
@click.argument("source")
@click.option("--dry-run", is_flag=True, help="Only list what would be gone.")
@click.option("--restore", is_flag=True, help="Believe the source again.")
@click.option("--reason", help="Why, for the history.")
@log_option
@json_option
@asynchronous
async def retract_command(
    source: str, dry_run: bool, restore: bool, reason: str | None, log_url: str | None, as_json: bool
) -> None:
    """Do not believe a source: what comes from it is gone, directly or through others, in all scopes.

    SOURCE is a text as `why` shows it: web:https://…, label:web, run:ID, agent:TYPE, memory:ID. What it had
    replaced is back. One from which nothing comes is refused, and one that is retracted already stays so.
    """
    if dry_run and restore:
        raise click.UsageError("--dry-run says what a retraction takes away, not what --restore brings.")
    async with opened(log_url) as log:
        memory = await _memory(log, log_url)
        store = memory.durable.store
        is_retracted = source in unbelieved(retractions(store))
        if not is_retracted and not is_source(store, source):
            raise ConfigError(
                f"No fact comes from {source[:_LONGEST_SOURCE]!r}.",
                hint="`noesium memory list` shows what comes from where, `noesium memory why KEY` all of it.",
            )
        gone = derived_from(store, source)
        if restore:
            await memory.durable.restore(source, reason=reason)
        elif not dry_run and not is_retracted:
            await memory.retract(source, reason=reason)
    if as_json:
        out_json({"source": source, "dry_run": dry_run, "gone": [_fact_json(fact) for fact in gone]})
        return
    if gone and not restore:
        table(("scope", "key", "value"), [(fact.scope, fact.key, _value(fact)) for fact in gone])
    if restore:
        note(f"{escaped(source)} is believed again.")
    elif is_retracted:
        note(f"{escaped(source)} is retracted already.")
    else:
        one = len(gone) == 1
        are = "would be" if dry_run else "is" if one else "are"
        note(f"{len(gone)} {'fact' if one else 'facts'} {are} gone.")


async def _memory(
    log: EventLog, log_url: str | None, scope: str | None = None, key: str | None = None
) -> MemoryManager:
    """The memory of a log, caught up, in the name of the user; of the scope that has a key, if none is given.

    Raises:
        ConfigError: several scopes have the key.
        MemoryScopeError: this is no scope.
    """
    clock = SystemClock()
    producer = AgentRef(await deciding_name(log), "client", "local", clock.uuid7())
    home = settings(log_url).noesium.home
    memory = memory_of(log, home, producer, scope or "shared", clock=clock, report=note)
    await memory.durable.store.catch_up(log)
    if scope is not None or key is None:
        return memory
    having = scopes_of(memory.durable.store, key)
    if len(having) > 1:
        raise ConfigError(
            f"{len(having)} scopes have the key {key[:60]!r}.", hint=f"Name one: --scope {having[0]}"
        )
    return memory.at(having[0]) if having else memory


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text[:100]!r} is not a time.", hint="Write it as 2026-03-01T12:00:00Z."
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _position(text: str) -> Position | None:
    """The position that a text names; None: it names none."""
    found = _POSITION.fullmatch(text)
    return None if found is None else Position(found[1], int(found[2]), int(found[3]))


def _print_items(items: Sequence[MemoryItem], as_json: bool, none: str) -> None:
    if as_json:
        out_json([item.to_json() for item in items])
    elif items:
        table(("scope", "key", "value", "since", "by", "from"), map(_row, items), below=_others(items))
    else:
        note(none)


def _values(values: Sequence[Any] | None) -> str:
    return NOTHING if values is None else ", then ".join(json_text(one)[:_SHOWN] for one in values)


def _print_item(key: str, item: MemoryItem | None, as_json: bool) -> None:
    if item is None:
        _nothing(key)
    elif as_json:
        out_json(item.to_json())
    else:
        for one in (item, *item.contradictions):
            out(escaped(one.value if isinstance(one.value, str) else json_text(one.value)))
            note(_about(one))


def _about(item: MemoryItem) -> str:
    said = f", said by {item.said_by}" if item.said_by else ""
    where = f" in run {item.run_id}" if item.run_id else ""
    origin = f", from {', '.join(item.sources)}" if item.sources else ""
    return escaped(f"since {to_rfc3339(item.at_ms)}, by {item.by}{where}{said}{origin}")


def _because(one: Because) -> str:
    fact, role = one.fact, {"is": "", "from": "from ", "replaced": "replaced "}[one.role]
    state = "" if one.status in ("live", "replaced") else f" ({one.status})"
    said = f", said by {fact.said_by}" if fact.said_by else ""
    origin = f", from {', '.join(fact.sources)}" if fact.sources else ""
    told = f"{role}{_value(fact)}{state}  since {to_rfc3339(fact.at_ms)}, by {_by(fact)}{said}{origin}"
    return "  " * one.depth + escaped(told)


def _row(item: MemoryItem) -> tuple[str, ...]:
    value = json_text(item.value)[:_SHOWN]
    by = item.said_by or item.by
    return item.scope, item.key, value, to_rfc3339(item.at_ms), by, ", ".join(item.sources) or "-"


def _others(items: Sequence[MemoryItem]) -> list[list[str]]:
    return [
        [
            f"contradicted by {json_text(one.value)[:_SHOWN]}, {one.said_by or one.by}"
            for one in item.contradictions
        ]
        for item in items
    ]


def _value(fact: Fact) -> str:
    return "forgotten" if fact.deleted else json_text(fact.value)[:_SHOWN]


def _by(fact: Fact) -> str:
    return fact.agent_id if fact.run_id is None else f"{fact.agent_id} in run {fact.run_id}"


def _fact_json(fact: Fact) -> dict[str, Any]:
    found = {name: getattr(fact, name) for name in fact.__slots__}
    return {name: value for name, value in found.items() if name == "value" or value not in (None, (), False)}


def _nothing(key: str) -> None:
    note(f"Nothing is remembered under {escaped(key)}.")
    raise click.exceptions.Exit(FAILED)
