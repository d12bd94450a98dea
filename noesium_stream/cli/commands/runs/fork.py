"""`noesium fork`: starts a run that shares another run's history up to a step, or shows what it would do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from noesium_stream.cli.exits import FAILED
from noesium_stream.cli.output import dim, note, out, out_json, shorten
from noesium_stream.cli.replaying import graph_option, options_option, target_for
from noesium_stream.cli.session import (
    acting_name,
    asynchronous,
    given_run,
    json_option,
    log_option,
    on_log,
    opened,
)
from noesium_stream.cli.session import settings as effective
from noesium_stream.client import Client, Run, operate
from noesium_stream.clock import to_rfc3339
from noesium_stream.event.rules.agent_calls import input_of
from noesium_stream.kernel.run_history import superstep
from noesium_stream.kernel.verify.difference import describe_call
from noesium_stream.redaction import hide_secrets, redacted

if TYPE_CHECKING:
    from noesium_stream.kernel.dry_run.dry_run import DryRun
    from noesium_stream.kernel.dry_run.dry_run_journal import DryStep

_WIDTH: Final = 400


@click.command("fork")
@click.argument("run_id", metavar="RUN", callback=given_run)
@click.option(
    "--at", "step", type=click.IntRange(0), required=True, help="After which superstep; 0: the beginning."
)
@click.option(
    "--set", "settings", multiple=True, metavar="PATH=VALUE", help="Another value in the state there."
)
@click.option(
    "--perform/--dry-run",
    "perform",
    default=False,
    help="Start the run, with all its effects; or show here what it would do.  [default: --dry-run]",
)
@graph_option
@options_option
@log_option
@json_option
@asynchronous
async def fork_command(
    run_id: str,
    step: int,
    settings: tuple[str, ...],
    perform: bool,
    graph: str | None,
    options: tuple[str, ...],
    log_url: str | None,
    as_json: bool,
) -> None:
    """Show what a run would have done with other values after a step, or do it.

    By default a dry run in this process: nothing is written. The steps after the fork run again. A call that
    the run made as well gets what is recorded; a new one (an effect, another agent, a question) is shown and
    not made, and the step that needs its result stops. Effects of the class PURE are called, models too; a
    step that polls stops after 1000 of these calls and pauses. Work that a node's body does directly, not
    through step.effect, a model, a tool or another agent, is done. Exit code 1 if the fork would fail.

    With --perform: start a new run that shares the history up to the step, and print its id. A worker of the
    agent executes it, and makes all its calls, also those that the first run has made.

    PATH is a path in the state (items[2].text). VALUE is JSON; any other text is taken as text.
    """
    values = dict(operate.fork.parse_setting(setting) for setting in settings)
    async with opened(log_url) as log, Client(log, agent_id=await acting_name(log)) as client:
        parent = await client.get_run(run_id)
        if not perform:
            target = target_for(log, graph, options, parent.agent_type)
            found = await operate.fork.dry_fork(parent, step, values, target)
            return _show_dry_run(parent, step, found, as_json)
        code = target_for(log, graph, options, parent.agent_type) if values or graph else None
        run = await operate.fork.fork(client, parent, step, values, code)
    if as_json:
        return out_json({"run_id": run.id, "parent_run_id": parent.id, "step": step})
    out(run.id)
    follow = f"noesium events --follow {run.id}{on_log(effective(log_url))}"
    return note(f"branches off {parent.id} after step {step}; follow it: {follow}")


def _show_dry_run(parent: Run, at: int, found: DryRun, as_json: bool) -> None:
    note(f"dry run of a fork of {parent.id} after step {at}: nothing is performed; --perform starts it")
    if as_json:
        out_json(_fields(parent, at, found))
    else:
        for line in _lines(found):
            out(line)
    if found.outcome == "failed":
        raise click.exceptions.Exit(FAILED)


def _lines(found: DryRun) -> Iterator[str]:
    for step in found.steps:
        yield f"step {superstep(step.key)}, node {step.node}  {_end_of(step)}"
        for event in step.reused.values():
            yield f"  as recorded  {_call(event.event_type, event.payload)}"
        for kind, payload in step.calls:
            verb = "called" if payload.get("effect_class") == "pure" else "would call"
            verb = {"approval.requested": "would ask", "timer.started": "would pause"}.get(kind, verb)
            yield f"  {verb}  {_call(kind, payload)}"
        for kind, payload in step.events:
            yield f"  would emit  {_shown(kind, payload)}"
        if step.waits is not None:
            yield f"  would wait for {step.waits}"
        if step.polls:
            yield f"  it polls: a dry run ends at {found.most_calls} new calls of PURE effects and pauses"
        if step.error is not None:
            yield f"  {redacted(shorten(step.error, _WIDTH))}"
    if found.outcome == "completed":
        yield f"completed  {_shown('', found.result)}"
    elif found.outcome == "failed":
        yield f"failed  {redacted(shorten(found.error or '', _WIDTH))}"
    else:
        yield "stopped: what follows depends on results that a dry run does not have"


def _end_of(step: DryStep) -> str:
    return "stops" if step.outcome == "open" else dim(step.outcome)


def _call(kind: str, payload: dict[str, Any]) -> str:
    """`pay(20)  (external)`, on one line, without secrets."""
    if kind == "timer.started":
        return f"until {to_rfc3339(payload['due_ms'])}"
    described = describe_call(kind, hide_secrets(payload))
    return f"{described}  ({payload['effect_class']})" if kind == "effect.requested" else described


def _shown(name: str, value: Any) -> str:
    return shorten(f"{name} {json.dumps(hide_secrets(value), ensure_ascii=False)}", _WIDTH)


def _fields(parent: Run, at: int, found: DryRun) -> dict[str, Any]:
    return {
        "dry_run": True,
        "parent_run_id": parent.id,
        "step": at,
        "outcome": found.outcome,
        "result": hide_secrets(found.result),
        "error": None if found.error is None else redacted(found.error),
        "steps": [_step_fields(step) for step in found.steps],
    }


def _step_fields(step: DryStep) -> dict[str, Any]:
    return {
        "step": superstep(step.key),
        "node": step.node,
        "outcome": step.outcome,
        "error": None if step.error is None else redacted(step.error),
        "as_recorded": [_call_fields(event.event_type, event.payload) for event in step.reused.values()],
        "calls": [_call_fields(*call) for call in step.calls],
        "polls": step.polls,
        "events": [{"type": kind, "payload": hide_secrets(payload)} for kind, payload in step.events],
    }


def _call_fields(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """A call as JSON: its type, what is called, its class, and the arguments or the question."""
    shown = hide_secrets(payload)
    return {
        "type": kind,
        "name": shown.get("name") or shown.get("capability_id"),
        "effect_class": shown.get("effect_class"),
        "arguments": shown["question"] if "question" in shown else input_of(shown),
    }
