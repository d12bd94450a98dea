"""`noesium schedule`: runs that start by the clock."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final

import click

from noesium_stream.agent.schedules.cron import time_zone
from noesium_stream.cli.commands.runs.given_input import GivenInput
from noesium_stream.cli.output import note, out, out_json
from noesium_stream.cli.session import (
    asking,
    asynchronous,
    json_option,
    shared_log_option,
)
from noesium_stream.cli.spans import Span
from noesium_stream.cli.table import table
from noesium_stream.client.client import Client
from noesium_stream.client.schedules import CATCHUP, ScheduleClient, ScheduleInfo
from noesium_stream.clock import to_datetime
from noesium_stream.errors import ConfigError
from noesium_stream.event.standard import Overlap

_POLICIES: Final = tuple(one.value for one in Overlap)


@click.group("schedule")
def schedule_command() -> None:
    """Start runs by the clock: cron, intervals, moments.

    A worker of the scheduler has to run somewhere: noesium worker agents.scheduler
    """


@asynccontextmanager
async def _schedules(log_url: str | None) -> AsyncIterator[ScheduleClient]:
    async with asking(log_url, "scheduler", "schedules") as (client, folder):
        yield ScheduleClient(client, folder=folder)


async def _note_unknown(client: Client, agent_type: str) -> None:
    """Say on standard error that no worker has ever run an agent type on this log; it may come later."""
    known = await client.agent_types()
    if agent_type not in known:
        near = difflib.get_close_matches(agent_type, known, 1)
        meant = f" Did you mean {near[0]}?" if near else ""
        note(
            f"nobody has ever run the agent type {agent_type} on this log: "
            f"the ticks wait until a worker of it runs.{meant}"
        )


@schedule_command.command("add")
@click.argument("name")
@click.argument("agent_type", metavar="TYPE")
@click.option(
    "--input", "given", type=GivenInput(), metavar="JSON", help="The runs' input: JSON, @FILE, or -."
)
@click.option("--cron", metavar="EXPR", help="Five fields: minute, hour, day of month, month, day of week.")
@click.option(
    "--zone", metavar="ZONE", help="The time zone of --cron and --at: Europe/Berlin. [default: UTC]"
)
@click.option("--every", type=Span(), metavar="TIME", help="An interval: 90s, 10m, 1h30m, 2d.")
@click.option("--phase", type=Span(), metavar="TIME", help="With --every: the offset of its ticks.")
@click.option("--at", metavar="MOMENT", help="Once: 2026-12-24T18:00, in --zone, or with an offset.")
@click.option("--from", "starts", metavar="MOMENT", help="It does not tick before; as --at.")
@click.option("--until", "ends", metavar="MOMENT", help="It does not tick after; as --at.")
@click.option(
    "--overlap",
    type=click.Choice(_POLICIES),
    default=Overlap.SKIP.value,
    show_default=True,
    help="What becomes of a tick while a run of an earlier one is open.",
)
@click.option(
    "--catch-up",
    "catchup",
    type=Span(),
    metavar="TIME",
    help="How late a tick may be started if no worker was there; 10s at least. [default: 1h]",
)
@click.option("--jitter", type=Span(), metavar="TIME", help="By how much a tick comes late at most.")
@click.option("--limit", type=Span(), metavar="TIME", help="A run that has not ended by then is ended.")
@click.option("--paused", is_flag=True, help="Begin paused.")
@click.option("--note", "remark", metavar="TEXT", help="Why it begins paused, or what it is for.")
@shared_log_option
@json_option
@asynchronous
async def add_command(
    name: str,
    agent_type: str,
    given: dict[str, Any] | None,
    cron: str | None,
    zone: str | None,
    every: timedelta | None,
    phase: timedelta | None,
    at: str | None,
    starts: str | None,
    ends: str | None,
    overlap: str,
    catchup: timedelta | None,
    jitter: timedelta | None,
    limit: timedelta | None,
    paused: bool,
    remark: str | None,
    log_url: str | None,
    as_json: bool,
) -> None:
    """Add the schedule NAME: it starts a run of the agent type TYPE at each tick.

    Give one of --cron, --every and --at.
    """
    moment = None if at is None else _moment(at, zone)
    async with asking(log_url, "scheduler", "schedules", make=True) as (client, folder):
        added = await ScheduleClient(client, folder=folder).add(
            name,
            agent_type,
            given,
            cron=cron,
            zone=None if at is not None else zone,
            every=every,
            phase=phase or 0,
            at=moment,
            starts=None if starts is None else _bound(starts, zone),
            ends=None if ends is None else _bound(ends, zone),
            overlap=overlap,
            catchup=CATCHUP if catchup is None else catchup,
            jitter=jitter or 0,
            limit=limit,
            paused=paused,
            note=remark,
        )
        _show([added], as_json=as_json)
        await _note_unknown(client, agent_type)


@schedule_command.command("list")
@click.argument("name", required=False)
@shared_log_option
@json_option
@asynchronous
async def list_command(name: str | None, log_url: str | None, as_json: bool) -> None:
    """List schedules, or the one that is named: its next ticks, its last run, what is open."""
    async with _schedules(log_url) as schedules:
        found = await schedules.list() if name is None else [await schedules.get(name)]
        if as_json:
            out_json([asdict(one) for one in found])
        elif not found:
            note("There are no schedules on this log.")
        else:
            _show(found, as_json=False)


@schedule_command.command("pause")
@click.argument("name")
@click.option("--note", "remark", metavar="TEXT", help="Why.")
@shared_log_option
@asynchronous
async def pause_command(name: str, remark: str | None, log_url: str | None) -> None:
    """Let the schedule NAME tick no more, until it is resumed."""
    async with _schedules(log_url) as schedules:
        await schedules.pause(name, remark)
        out(f"paused {name}")


@schedule_command.command("resume")
@click.argument("name")
@click.option("--note", "remark", metavar="TEXT", help="Why.")
@shared_log_option
@asynchronous
async def resume_command(name: str, remark: str | None, log_url: str | None) -> None:
    """Let a paused schedule tick again; ticks of the pause are not made up."""
    async with _schedules(log_url) as schedules:
        await schedules.resume(name, remark)
        out(f"resumed {name}")


@schedule_command.command("trigger")
@click.argument("name")
@click.option(
    "--overlap", type=click.Choice(_POLICIES), help="For this tick. [default: that of the schedule]"
)
@shared_log_option
@asynchronous
async def trigger_command(name: str, overlap: str | None, log_url: str | None) -> None:
    """Let the schedule NAME tick now, also if it is paused."""
    async with _schedules(log_url) as schedules:
        await schedules.trigger(name, overlap=overlap)
        out(f"triggered {name}")


@schedule_command.command("remove")
@click.argument("name")
@shared_log_option
@asynchronous
async def remove_command(name: str, log_url: str | None) -> None:
    """Remove the schedule NAME; its open runs go on."""
    async with _schedules(log_url) as schedules:
        await schedules.remove(name)
        out(f"removed {name}")


def _moment(text: str, zone: str | None) -> datetime:
    """Parse --at.

    Raises:
        ConfigError: it is no moment, or has no time zone.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text[:80]!r} is no moment.", hint="Write it as 2026-12-24T18:00.") from None
    if moment.tzinfo is None:
        return moment.replace(tzinfo=time_zone(zone or "UTC"))
    if zone is not None:
        raise ConfigError(f"{text[:80]} has an offset already: leave --zone out.")
    return moment


def _bound(text: str, zone: str | None) -> datetime:
    """Parse --from or --until: in --zone, unless it has an offset.

    Raises:
        ConfigError: it is no moment.
    """
    try:
        has_offset = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        has_offset = False
    return _moment(text, None if has_offset else zone)


def _show(found: list[ScheduleInfo], *, as_json: bool) -> None:
    if as_json:
        out_json(asdict(found[0]))
        return
    header = ("name", "agent", "when", "overlap", "status", "started", "skipped", "last")
    table(header, map(_row, found), right=frozenset({5, 6}), below=[*map(_below, found)])


def _row(one: ScheduleInfo) -> tuple[str, ...]:
    status = "paused" if one.paused else "stuck" if one.problem else "on" if one.next_ms else "over"
    last = "" if one.last is None else f"{one.last.status} {_shown(one.last.ended_ms)}"
    return (
        one.name,
        one.agent_type,
        one.when,
        one.overlap,
        status,
        str(one.started),
        str(one.skipped),
        last,
    )


def _below(one: ScheduleInfo) -> list[str]:
    lines = []
    if one.next_ms:
        lines.append("next     " + ", ".join(map(_shown, one.next_ms)))
    lines += [f"running  {tick.run_id} since the tick of {_shown(tick.tick_ms)}" for tick in one.open]
    if one.waiting:
        lines.append(f"waiting  {len(one.waiting)}, from the tick of {_shown(one.waiting[0].tick_ms)} on")
    if one.last is not None and one.last.error:
        lines.append("error    " + " ".join(one.last.error.split()))
    if one.note:
        lines.append("note     " + " ".join(one.note.split()))
    if one.problem:
        lines.append("problem  " + one.problem)
    return lines


def _shown(ms: int) -> str:
    return to_datetime(ms).strftime("%Y-%m-%d %H:%M:%SZ")
