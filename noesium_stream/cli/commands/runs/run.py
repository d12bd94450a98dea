"""`noesium run`: ask an agent a question, watch it work, get the answer."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import click

from noesium_stream.cli.agents import AgentChoice, AgentCommand
from noesium_stream.cli.answer import print_answer, result_json
from noesium_stream.cli.commands.runs.given_budget import BudgetOption, with_accounts
from noesium_stream.cli.commands.runs.given_input import GivenInput
from noesium_stream.cli.commands.runs.run_here import Question
from noesium_stream.cli.exits import EXIT_CODES
from noesium_stream.cli.output import out_json
from noesium_stream.cli.pieces import PiecePrinter
from noesium_stream.cli.session import (
    acting_name,
    asynchronous,
    given_run,
    json_option,
    log_option,
    must_exist,
    open_configured,
    settings,
)
from noesium_stream.cli.spans import Span
from noesium_stream.client import Client
from noesium_stream.event.rules.attributes import checked_attributes, parse_attribute
from noesium_stream.event.sealing.keys import checked_subject
from noesium_stream.event.trust.budget import Budget
from noesium_stream.event.trust.permission import MODES, check_limits


@click.command(
    "run",
    cls=AgentCommand,
    epilog=f"An agent's own options: noesium run AGENT --help\n\n{EXIT_CODES}",
    no_args_is_help=True,
)
@click.argument("agent")
@click.argument("question", required=False)
@log_option
@json_option
@click.option(
    "--input",
    "given",
    type=GivenInput(),
    metavar="JSON",
    help="The input of an agent that takes no question: a JSON object, @FILE, or - for standard input.",
)
@click.option(
    "--key",
    metavar="TEXT",
    help="Idempotency key: the same key meets the same run; the input has to be the same, too.",
)
@click.option(
    "--deadline",
    type=Span(),
    metavar="TIME",
    help="End the run, and undo what it did, if it has not ended so long from now: 90s, 10m, 1h30m, 2d.",
)
@click.option(
    "--stream",
    "streams",
    is_flag=True,
    help="Print the pieces of the answer on standard output as they come, instead of the whole answer.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="The most that the agent's tools may do in this run; see noesium guide permission.",
)
@click.option(
    "--permission",
    "permissions",
    multiple=True,
    metavar="PERMISSION",
    help="Limit the agent's tools in this run to this permission, as fs:read; may be given several times.",
)
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    metavar="NAME=VALUE",
    help="A search attribute, by which noesium runs --where finds the run; may be given several times.",
)
@click.option(
    "--budget",
    type=BudgetOption(),
    metavar="LIMITS",
    help="What the run, with those below it, may spend on models: usd=0.5,tokens=10000,calls=20,seconds=60.",
)
@click.option(
    "--account",
    "accounts",
    multiple=True,
    metavar="ACCOUNT",
    help="Who pays for the run's models: user:NAME or tenant:NAME; see noesium budget. May be repeated.",
)
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="SUBJECT",
    help="The person whom the run is about (user:42): all that it records is sealed, and can be erased.",
)
@click.option(
    "--resume", "resumed", metavar="RUN", callback=given_run, help="Go on with a run instead of a new one."
)
@click.pass_obj
@asynchronous
async def run_command(
    choice: AgentChoice,
    agent: str,
    question: str | None,
    log_url: str | None,
    as_json: bool,
    given: dict[str, Any] | None,
    key: str | None,
    deadline: timedelta | None,
    streams: bool,
    mode: str | None,
    permissions: tuple[str, ...],
    attributes: tuple[str, ...],
    budget: Budget | None,
    accounts: tuple[str, ...],
    subjects: tuple[str, ...],
    resumed: str | None,
) -> None:
    """Ask an agent a question and print its answer.

    AGENT is a module that exports an agent (agents.researcher), module:Class, or module:graph of a LangGraph
    graph, whose initial state is the --input. A module may be given by its file: triage.py:graph. Without a
    name the module's only graph is taken, or the one called graph.

    On the embedded log the agent and its companions run in this process; on kafka:// the workers attached
    there do the work. On the embedded log this process also resumes other open runs of the agent. It gives
    them up when its own run ends, as soon as effects under way are recorded (8 s at most).

    Progress goes to standard error; standard output has only the answer. --json prints one object: run_id,
    answer, citations, sources, events (their number), log, and all other fields of the agent's result (the
    researcher's `found` says whether the documents answer the question).

    An agent that answers in pieces shows them on a terminal, as progress. With --stream they are the output,
    and the whole answer is printed only if there were none. What a broken-off attempt has written stays
    there, and standard error says that it is void.
    """
    if [question, given, resumed].count(None) != 2:
        raise click.UsageError("Give either a QUESTION, or --input JSON, or --resume RUN.")
    if streams and as_json:
        raise click.UsageError("--stream prints text, and --json one object: give one of them.")
    if resumed is not None and deadline is not None:
        raise click.UsageError("A run keeps the deadline that it began with: --deadline is for a new one.")
    if resumed is not None and (mode is not None or permissions):
        raise click.UsageError("A run keeps its limits: --mode and --permission are for a new one.")
    if resumed is not None and attributes:
        raise click.UsageError("--attribute is for a new run; the steps of an open one set their own.")
    if resumed is not None and (budget is not None or accounts):
        raise click.UsageError("A run keeps its budget: --budget and --account are for a new one.")
    check_limits(permissions, mode)
    about = dict(map(parse_attribute, attributes))
    checked_attributes(about)
    limits: dict[str, Any] = {
        "mode": mode,
        "permissions": permissions or None,
        "attributes": about,
        "budget": with_accounts(budget, accounts),
        "subject": _subjects(subjects, resumed),
    }
    loaded = settings(log_url)
    asked = Question(choice, agent, loaded)
    # Check the input before anything is opened or created.
    input_ = asked.input(question) if question is not None else given or {}
    if resumed is not None:
        must_exist(loaded)
    else:
        asked.check(input_)
    log = await open_configured(loaded)
    try:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(log, agent_id=await acting_name(log)))
            # Report a missing run before the agents start, which may have much to read.
            found = None if resumed is None else await asked.find(client, resumed)
            worker = await stack.enter_async_context(asked.workers(log))
            run = found or await asked.begin(client, input_, key, deadline=deadline, **limits)
            pieces = PiecePrinter(as_result=streams) if streams or sys.stderr.isatty() else None
            result, events = await asked.follow(run, worker, pieces)
            if as_json:
                out_json(result_json(run.id, result, events, log.url))
            elif not (streams and pieces is not None and pieces.printed):
                print_answer(result)
    finally:
        await log.close()


def _subjects(given: tuple[str, ...], resumed: str | None) -> list[str] | None:
    """The people whom a new run is about."""
    if resumed is not None and given:
        raise click.UsageError("A run keeps the subject that it began with: --subject is for a new one.")
    return [checked_subject(subject) for subject in given] or None
