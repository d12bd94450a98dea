"""`noesium effects` and `noesium effect resolve`: effects that wait for a person's decision."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

import click

from noesium_stream.cli.output import duration, note, out_json, shorten
from noesium_stream.cli.session import (
    acting_name,
    asynchronous,
    deciding_name,
    given_run,
    json_option,
    log_option,
    opened,
)
from noesium_stream.cli.table import table
from noesium_stream.client import Client, UnresolvedEffect
from noesium_stream.client.views.unresolved_effects import Decision
from noesium_stream.clock import SystemClock

_ID_WIDTH: Final = 8
_ARGUMENTS_WIDTH: Final = 110


@click.command("effects")
@click.argument("run_id", metavar="[RUN]", required=False, callback=given_run)
@log_option
@json_option
@asynchronous
async def effects_command(run_id: str | None, log_url: str | None, as_json: bool) -> None:
    """List effects that wait for a person to decide, the oldest first; of one run or of all.

    Of a run that has ended: the effects whose outcome is still unknown.

    The outcome is unknown (a process died or gave the run up before it was recorded, or the call took too
    long), or the effect is a compensation that has failed.
    """
    async with opened(log_url) as log, Client(log) as client:
        found = await (client.unresolved_effects() if run_id is None else _of_run(client, run_id))
    if as_json:
        out_json([asdict(effect) for effect in found])
    elif not found:
        note(f"No effect {'of the run' if run_id else f'on {log.url}'} waits for a decision.")
    else:
        now_ms = SystemClock().now_ms()
        header = ("run", "effect", "agent", "what", "class", "key", "age")
        table(header, [_row(effect, now_ms) for effect in found], below=[_below(effect) for effect in found])


@click.group("effect")
def effect_command() -> None:
    """Decide about effects of unknown outcome."""


@effect_command.command("resolve")
@click.argument("run_id", metavar="RUN", callback=given_run)
@click.argument("effect_id", metavar="EFFECT")
@click.option("--result", metavar="JSON", help="It was done, and this is what it gave (null: nothing).")
@click.option("--retry", is_flag=True, help="Call it again, under the same idempotency key.")
@click.option(
    "--fail", is_flag=True, help="It was not done: its node gets an error. A compensation: give up."
)
@click.option("--reason", metavar="TEXT", help="Why; it is recorded with the decision.")
@click.option("--as", "name", metavar="NAME", help="Who decides. [default: your user name]")
@log_option
@asynchronous
async def resolve(
    run_id: str,
    effect_id: str,
    result: str | None,
    retry: bool,
    fail: bool,
    reason: str | None,
    name: str | None,
    log_url: str | None,
) -> None:
    """Say what became of an effect; its run goes on with that.

    RUN and EFFECT may be the beginning of an id.
    """
    decision, value = _decision(result, retry, fail)
    async with opened(log_url) as log, Client(log, agent_id=await acting_name(log, name)) as client:
        run = await client.get_run(run_id)
        by = await deciding_name(log, name)
        sent = await run.resolve_effect(effect_id, decision, value, reason=reason, by=by)
        note(f"{decision}: sent for the effect {sent.effect_id} of {run.id}")


async def _of_run(client: Client, run_id: str) -> list[UnresolvedEffect]:
    run = await client.get_run(run_id)
    return [*await run.unresolved_effects(), *await run.abandoned_effects()]


def _decision(result: str | None, retry: bool, fail: bool) -> tuple[Decision, Any]:
    if (result is not None) + retry + fail != 1:
        raise click.UsageError("Say what became of it: one of --result JSON, --retry and --fail.")
    if result is None:
        return ("retry" if retry else "fail"), None
    try:
        return "result", json.loads(result)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(
            f"--result is no JSON: {error}. A text is written with quotes: '\"done\"'."
        ) from error


def _below(effect: UnresolvedEffect) -> list[str]:
    """Format the details that a person needs to decide: the full reason, and the arguments of the call."""
    reason = " ".join(effect.reason.split())
    if effect.arguments is None:
        return [reason]
    called = json.dumps(effect.arguments, ensure_ascii=False)
    return [reason, f"called with {shorten(called, _ARGUMENTS_WIDTH)}"]


def _row(effect: UnresolvedEffect, now_ms: int) -> tuple[str, ...]:
    return (
        effect.run_id,
        effect.effect_id[:_ID_WIDTH],
        effect.agent_type,
        shorten(effect.name, 40),
        effect.effect_class,
        effect.idempotency_key,
        duration(max(0, now_ms - effect.since_ms)),
    )
