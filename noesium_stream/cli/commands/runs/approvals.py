"""`noesium approvals`, `noesium approve` and `noesium reject`: questions of runs to people, and answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click

from noesium_stream.cli.commands.runs.questions import print_questions, whole_lines
from noesium_stream.cli.exits import FAILED, OK
from noesium_stream.cli.output import note, out_json, say_error
from noesium_stream.cli.session import (
    acting_name,
    asynchronous,
    deciding_name,
    given_run,
    json_option,
    log_option,
    on_log,
    opened,
    settings,
    where_option,
)
from noesium_stream.client import Approval, Client, Run
from noesium_stream.client.views.where import parse_where
from noesium_stream.clock import SystemClock
from noesium_stream.errors import EventError, EventStoreError, RunError, RunNotFoundError, brief


@click.command("approvals")
@click.argument("run_id", metavar="[RUN]", required=False, callback=given_run)
@click.option("-a", "--agent", "agent_type", metavar="TYPE", help="Only of runs of this agent type.")
@where_option
@log_option
@json_option
@asynchronous
async def approvals_command(
    run_id: str | None, agent_type: str | None, where: tuple[str, ...], log_url: str | None, as_json: bool
) -> None:
    """List what runs wait for people to answer, the oldest first.

    With RUN only what it and the runs below it ask. Below a question of a run that was called by others
    stands its path, from the root. Where the table of many cuts a question, RUN shows it whole.
    """
    if run_id is not None and (agent_type or where):
        raise click.UsageError("--agent and --where select among all questions: give no RUN.")
    conditions = parse_where(where)
    loaded = settings(log_url)
    async with opened(log_url) as log, Client(log) as client:
        if run_id is None:
            found = await client.approvals(agent_type=agent_type, where=conditions)
        else:
            found = await (await client.get_run(run_id)).questions()
    now_ms = SystemClock().now_ms()
    if as_json:
        out_json([{**asdict(question), "age_ms": max(0, now_ms - question.asked_ms)} for question in found])
    elif not found:
        whose = f"on {log.url}" if run_id is None else f"of the tree of {run_id}"
        note(f"No run {whose} waits for an answer.")
    else:
        whole = run_id is not None or len(found) == 1
        print_questions(found, now_ms, whole=whole, on_log=on_log(loaded))


def _answering(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments and options that `approve` and `reject` share."""
    decorators = (
        click.argument("ids", metavar="[RUN [ID]]...", nargs=-1, callback=_given_ids),
        click.option("--all", "every", is_flag=True, help="All open questions that you may answer."),
        click.option("-a", "--agent", "agent_type", metavar="TYPE", help="With --all: of this agent type."),
        where_option,
        click.option("-y", "--yes", is_flag=True, help="Do not ask before several are answered."),
        click.option("--value", metavar="JSON", help="What the question asks for."),
        click.option("--text", metavar="TEXT", help="The same, a text: without the quotes of JSON."),
        click.option("--as", "name", metavar="NAME", help="Who answers. [default: your user name]"),
        log_option,
    )
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def _given_ids(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        given_run(ctx, param, one)
    return value


@click.command("approve")
@_answering
@click.pass_context
@asynchronous
async def approve_command(ctx: click.Context, **given: Any) -> None:
    """Answer a run's question with yes.

    RUN and ID may be the beginning of an id; ID is needed where several questions of the run are open. If RUN
    itself asks nothing, the question of a run below it is answered.
    Several runs, or --all with --agent and --where, are answered together: they are listed first, each
    question whole, and nothing is sent before you say yes. One that is refused does not keep the others from
    being sent.
    """
    ctx.exit(await _answer(True, **given))


@click.command("reject")
@_answering
@click.pass_context
@asynchronous
async def reject_command(ctx: click.Context, **given: Any) -> None:
    """Answer a run's question with no.

    RUN and ID may be the beginning of an id; ID is needed where several questions of the run are open. If RUN
    itself asks nothing, the question of a run below it is answered.
    Several runs, or --all with --agent and --where, are answered together, as by `noesium approve`.
    """
    ctx.exit(await _answer(False, **given))


async def _answer(
    approved: bool,
    *,
    ids: tuple[str, ...],
    every: bool,
    agent_type: str | None,
    where: tuple[str, ...],
    yes: bool,
    value: str | None,
    text: str | None,
    name: str | None,
    log_url: str | None,
) -> int:
    """Answer the question of a run, or several; return the exit code."""
    if every == bool(ids):
        raise click.UsageError("Give RUN, several RUNs, or --all.")
    if not every and (agent_type or where):
        raise click.UsageError("--agent and --where select among all questions: give --all.")
    conditions, given = parse_where(where), _value(value, text)
    async with opened(log_url) as log, Client(log, agent_id=await acting_name(log, name)) as client:
        by = await deciding_name(log, name)
        if every:
            listed = await client.approvals(agent_type=agent_type, where=conditions)
            chosen = [one for one in listed if one.status == "open" and one.may_be_answered_by(by, approved)]
            return await _answer_several(client, chosen, approved, given, by, yes=yes)
        run = await client.get_run(ids[0])
        if len(ids) == 1 or (len(ids) == 2 and await _names_question(client, run, ids[1])):
            sent = await _send(run, *ids[1:], approved=approved, value=given, by=by)
            _say_answered(sent, approved)
            if not sent.is_shown_whole:
                note("\n".join(f"  {line}" for line in whole_lines(sent.question)))
            return OK
        chosen = [await _only_question(client, run_id) for run_id in dict.fromkeys(ids)]
        return await _answer_several(client, chosen, approved, given, by, yes=yes)


async def _names_question(client: Client, run: Run, given: str) -> bool:
    """Whether the second of two ids names a question of the run, and not a run of its own."""
    if any(question.approval_id.startswith(given) for question in await run.approvals()):
        return True
    try:
        await client.get_run(given)
    except RunNotFoundError:
        return True  # then the run has no such question, and that is what is said
    return False


async def _only_question(client: Client, run_id: str) -> Approval:
    """Return the only open question of a run.

    Raises:
        RunNotFoundError, RunEndedError, ApprovalClosedError, ApprovalError
    """
    return await (await client.get_run(run_id)).question()


async def _answer_several(
    client: Client, chosen: Sequence[Approval], approved: bool, value: Any, by: str, *, yes: bool
) -> int:
    """List questions, ask whether to answer them, and answer each; return the exit code."""
    if not chosen:
        note(f"No open question on {client.log.url} is for {by} to answer.")
        return OK
    print_questions(chosen, SystemClock().now_ms(), whole=True)
    what = "approve" if approved else "reject"
    count = f"{len(chosen)} question{'' if len(chosen) == 1 else 's'}"
    if not yes and not _confirmed(f"{what} {count} as {by}?"):
        note("nothing was answered")
        return FAILED
    failed = 0
    for question in chosen:
        run = client.run_handle(question.agent_type, question.run_id)
        try:
            sent = await _send(run, question.approval_id, approved=approved, value=value, by=by)
        except (RunError, EventError) as error:
            if isinstance(error, EventStoreError):
                raise  # the log is away: the others would fail alike
            failed += 1
            say_error(f"{run.id}: {error.message}", error.hint)
        else:
            _say_answered(sent, approved)
    if failed:
        note(f"{failed} of {count} could not be answered")
    return FAILED if failed else OK


def _confirmed(question: str) -> bool:
    """Ask a person at the terminal.

    Raises:
        click.UsageError: nobody is there.
    """
    if not sys.stdin.isatty():
        raise click.UsageError("Nobody is there to be asked whether to answer these: give --yes.")
    return click.confirm(question, err=True)


async def _send(run: Run, approval_id: str | None = None, *, approved: bool, value: Any, by: str) -> Approval:
    send = run.approve if approved else run.reject
    return await send(approval_id, value=value, by=by)


def _say_answered(question: Approval, approved: bool) -> None:
    note(f"{'approved' if approved else 'rejected'} {question.shown} of {question.run_id}")
    if approved and question.minimum is not None and question.status == "open":
        note(question.needed)


def _value(value: str | None, text: str | None) -> Any:
    """The value of an answer. What is no JSON is refused: as a text it would answer something else."""
    if value is None or text is not None:
        if value is not None:
            raise click.UsageError("Give either --value or --text.")
        return text
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--value is no JSON: {brief(error, 200)}. For a text: --text TEXT") from None
