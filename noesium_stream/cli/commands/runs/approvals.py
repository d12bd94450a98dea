"""`noesium approvals`, `noesium approve` and `noesium reject`: questions of runs to people, and answers."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from noesium_stream.client import Approval, Client
from noesium_stream.clock import SystemClock, to_rfc3339
from noesium_stream.errors import brief

_ID_WIDTH: Final = 8


@click.command("approvals")
@click.option("-a", "--agent", "agent_type", metavar="TYPE", help="Only of runs of this agent type.")
@log_option
@json_option
@asynchronous
async def approvals_command(agent_type: str | None, log_url: str | None, as_json: bool) -> None:
    """List what runs wait for people to answer, the oldest first."""
    async with opened(log_url) as log, Client(log) as client:
        found = await client.approvals(agent_type=agent_type)
    now_ms = SystemClock().now_ms()
    if as_json:
        out_json([{**asdict(question), "age_ms": max(0, now_ms - question.asked_ms)} for question in found])
    elif not found:
        note(f"No run on {log.url} waits for an answer.")
    else:
        header = ("run", "id", "agent", "node", "question", "approvers", "age", "deadline")
        below = [_answered(question) for question in found]
        table(header, (_row(question, now_ms) for question in found), below=below)


def _answering(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments and options that `approve` and `reject` share."""
    decorators = (
        click.argument("run_id", metavar="RUN", callback=given_run),
        click.argument("approval_id", metavar="[ID]", required=False),
        click.option("--value", metavar="JSON", help="What the question asks for."),
        click.option("--text", metavar="TEXT", help="The same, a text: without the quotes of JSON."),
        click.option("--as", "name", metavar="NAME", help="Who answers. [default: your user name]"),
        log_option,
    )
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


@click.command("approve")
@_answering
@asynchronous
async def approve_command(
    run_id: str,
    approval_id: str | None,
    value: str | None,
    text: str | None,
    name: str | None,
    log_url: str | None,
) -> None:
    """Answer a run's question with yes.

    RUN and ID may be the beginning of an id; ID is needed where several questions are open.
    """
    await _answer(run_id, approval_id, True, _value(value, text), name, log_url)


@click.command("reject")
@_answering
@asynchronous
async def reject_command(
    run_id: str,
    approval_id: str | None,
    value: str | None,
    text: str | None,
    name: str | None,
    log_url: str | None,
) -> None:
    """Answer a run's question with no.

    RUN and ID may be the beginning of an id; ID is needed where several questions are open.
    """
    await _answer(run_id, approval_id, False, _value(value, text), name, log_url)


async def _answer(
    run_id: str,
    approval_id: str | None,
    approved: bool,
    value: Any,
    name: str | None,
    log_url: str | None,
) -> None:
    async with opened(log_url) as log, Client(log, agent_id=await acting_name(log, name)) as client:
        run = await client.get_run(run_id)
        send = run.approve if approved else run.reject
        question = await send(approval_id, value=value, by=await deciding_name(log, name))
    note(f"{'approved' if approved else 'rejected'} {question.shown} of {run.id}")
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


def _row(question: Approval, now_ms: int) -> tuple[str, ...]:
    deadline = ""
    if question.deadline_ms is not None:
        deadline = to_rfc3339(question.deadline_ms)[:19].replace("T", " ")
        if question.deadline_ms <= now_ms:
            deadline += " passed"
    return (
        question.run_id,
        question.approval_id[:_ID_WIDTH],
        question.agent_type,
        question.node,
        shorten(question.shown, 60),
        _who(question),
        duration(max(0, now_ms - question.asked_ms)),
        deadline,
    )


def _who(question: Approval) -> str:
    who = ", ".join(question.approvers) or "anyone"
    return who if question.minimum is None else f"{question.minimum} of {who}"


def _answered(question: Approval) -> str:
    if question.status != "sent":
        return question.needed if question.approved_by else ""
    answered = "approved" if question.approved else "rejected"
    return f"{answered} by {question.answered_by}; no worker has taken that up yet"
