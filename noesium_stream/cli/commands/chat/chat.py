"""`noesium chat`: talk to an agent, leave, and go on in any other process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import click

from noesium_stream import agent as agent_layer
from noesium_stream.cli.agents import AgentChoice, AgentCommand, is_missing
from noesium_stream.cli.commands.chat.talk import Talk
from noesium_stream.cli.commands.runs.patience import Patience, WorkerCommands
from noesium_stream.cli.commands.runs.run_here import Question
from noesium_stream.cli.exits import EXIT_CODES
from noesium_stream.cli.output import note, out_json, shorten
from noesium_stream.cli.session import (
    asynchronous,
    deciding_name,
    json_option,
    log_option,
    must_exist,
    on_log,
    open_configured,
    settings,
)
from noesium_stream.cli.table import table
from noesium_stream.client import Client
from noesium_stream.client.conversation import Conversation
from noesium_stream.clock import to_rfc3339
from noesium_stream.config import Loaded
from noesium_stream.errors import AgentLoadError, ConfigError, RunEndedError, RunNotFoundError
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.sealing.keys import checked_subject
from noesium_stream.event.trust.permission import MODES, check_limits

if TYPE_CHECKING:
    from noesium_stream.agent import BaseHitlAgent
    from noesium_stream.client import RunInfo
    from noesium_stream.log import EventLog
    from noesium_stream.worker import Worker

ASSISTANT: Final = "agents.assistant"
NEWEST: Final = "newest"
_LONGEST_ID: Final = 60


class ChatCommand(AgentCommand):
    """`AgentCommand` for which the assistant is the default agent."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the assistant where no agent is named, so that its options are known."""
        words = _with_values(args)
        named, _ = self._references(ctx, words)
        wanted = _word_after_resume(args)
        if wanted is not None and wanted not in named:
            raise _no_conversation(wanted, "noesium chat --list")
        try:
            return super().parse_args(ctx, [*words, *([] if named else [ASSISTANT])])
        except AgentLoadError as error:
            if wanted is not None and is_missing(wanted, error):
                raise _no_conversation(wanted, "noesium chat --list") from error
            raise


def _word_after_resume(args: Sequence[str]) -> str | None:
    """The word after `--resume` that cannot be a run's id: an agent, or a mistake."""
    for option, word in pairwise(args):
        if option == "--resume" and not word.startswith("-") and not _is_run(word):
            return word
    return None


def _no_conversation(wanted: str, lists: str) -> RunNotFoundError:
    return RunNotFoundError(
        f"There is no conversation {wanted[:_LONGEST_ID]}.", hint=f"Yours are listed by: {lists}"
    )


def _with_values(args: Sequence[str]) -> list[str]:
    """The arguments with a value for each `--resume`: `newest` where none is given."""
    made: list[str] = []
    for at, arg in enumerate(args):
        made.append(arg)
        if arg == "--resume":
            following = args[at + 1] if at + 1 < len(args) else "-"
            if following.startswith("-") or not _is_run(following):
                made.append(NEWEST)
    return made


def _is_run(text: str) -> bool:
    """Whether a word is a run's id, or the beginning of one."""
    return text == NEWEST or (0 < len(text) <= 36 and not set(text.lower()) - set("0123456789abcdef-"))


@click.command(
    "chat",
    cls=ChatCommand,
    epilog=f"The agent's own options: noesium chat AGENT --help\n\n{EXIT_CODES}",
)
@click.argument("agent")
@log_option
@json_option
@click.option(
    "--resume",
    "resumed",
    metavar="[RUN]",
    help="Go on with a conversation; without RUN with your newest one that is open.",
)
@click.option("--list", "lists", is_flag=True, help="List your conversations, and go on with none.")
@click.option("--as", "name", metavar="NAME", help="Who you are. [default: your key's name, else your login]")
@click.option("--title", help="What a new conversation is about, for --list.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="The most that the agent's tools may do in a new conversation; see noesium guide permission.",
)
@click.option(
    "--permission",
    "permissions",
    multiple=True,
    metavar="PERMISSION",
    help="Limit the agent's tools in a new conversation to this permission; may be given several times.",
)
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="SUBJECT",
    help="The person whom a new conversation is about (user:NAME): all of it is sealed, and can be erased.",
)
@click.pass_obj
@asynchronous
async def chat_command(
    choice: AgentChoice,
    agent: str,
    log_url: str | None,
    as_json: bool,
    resumed: str | None,
    lists: bool,
    name: str | None,
    title: str | None,
    mode: str | None,
    permissions: tuple[str, ...],
    subjects: tuple[str, ...],
) -> None:
    """Talk to an agent that remembers, and asks before it writes.

    AGENT is the assistant, if none is given; else a module that exports a BaseHitlAgent, as for `run`.
    Without --model the assistant answers from what it was told and, with --docs DIR, from documents.

    On the embedded log the agent runs in this process; on kafka:// the workers attached there do the work.
    A conversation is a run: leave it or kill this process, and go on with --resume in any other one.

    Type /help for what can be asked beside talking: /memory, /why, /undo and others. Answers go to standard
    output, all else to standard error. Lines may come from a pipe.
    """
    if resumed is not None and (title is not None or mode is not None or permissions or subjects):
        raise click.UsageError("A conversation keeps its title, limits and subject: they are for a new one.")
    if as_json and not lists:
        raise click.UsageError("--json is for --list.")
    check_limits(permissions, mode)
    loaded = settings(log_url)
    command = "noesium chat" if agent == ASSISTANT else f"noesium chat {agent}"
    asked = Question(choice, agent, loaded, command=command)
    if not issubclass(asked.agent, agent_layer.BaseHitlAgent):
        raise ConfigError(
            f"{agent} is no agent to talk to: it is no BaseHitlAgent.", hint=f"Ask it: noesium run {agent}"
        )
    if resumed is not None or lists:
        must_exist(loaded)
    log = await open_configured(loaded)
    try:
        person = await deciding_name(log, name)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(log, agent_id=person))
            if lists:
                _print_list(await _conversations(client, asked.agent.agent_type, person), as_json)
                return
            found = await _found(client, asked.agent, person, resumed, f"{command} --list{on_log(loaded)}")
            worker = await stack.enter_async_context(asked.workers(log))
            patience = None
            if found is None:
                found = await client.start_conversation(
                    asked.agent.agent_type,
                    user=person,
                    title=title,
                    mode=mode,
                    permissions=permissions or None,
                    subject=[checked_subject(subject) for subject in subjects] or None,
                )
                commands = WorkerCommands(choice, agent, loaded.shown_log)
                patience = await stack.enter_async_context(Patience(found.id, commands))
            note(f"conversation {found.id}  (/help, /quit)")
            await _talk(
                found, worker, patience, client, person, f"{command} --resume {found.id}", loaded, log
            )
    finally:
        await log.close()


async def _talk(
    conversation: Conversation,
    worker: Worker | None,
    patience: Patience | None,
    client: Client,
    person: str,
    command: str,
    loaded: Loaded,
    log: EventLog,
) -> None:
    user = conversation.view.user or person
    memory = client.memory(f"user:{user}", home=loaded.noesium.home)
    talk = Talk(conversation, memory, person, (lambda _: None) if patience is None else patience.see)
    tasks = [asyncio.create_task(talk.until_left())]
    if worker is not None:
        tasks.append(asyncio.create_task(worker.wait()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in reversed(tasks):
            if task.done():
                task.result()  # raise the error of a failed worker: nobody answers any more
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.closing(memory):
            talk.say_how_to_resume(command + on_log(loaded))


async def _found(
    client: Client, agent: type[BaseHitlAgent], person: str, resumed: str | None, lists: str
) -> Conversation | None:
    """The conversation to go on with; None: a new one is wanted.

    Raises:
        RunNotFoundError: there is none.
        RunEndedError: it has ended.
        ConfigError: it is another agent's.
    """
    if resumed is None:
        return None
    if resumed == NEWEST:
        infos = await _conversations(client, agent.agent_type, person)
        newest = next((info for info in infos if info.status not in ENDINGS.values()), None)
        if newest is None:
            raise RunNotFoundError(
                f"{person} has no open conversation with {agent.agent_type}.", hint="Begin one: noesium chat"
            )
        resumed = newest.run_id
    try:
        found = await client.conversation(resumed)
    except RunNotFoundError as error:
        if any(run.run_id.startswith(resumed) for run in await client.list_runs()):
            raise  # several begin like this
        raise _no_conversation(resumed, lists) from error
    if found.run.agent_type != agent.agent_type:
        raise ConfigError(
            f"Run {found.id} is one of {found.run.agent_type}, and not of {agent.agent_type}.",
            hint="Name its agent: noesium chat AGENT --resume RUN",
        )
    if found.view.ended:
        raise RunEndedError(f"The conversation {found.id} has ended.", hint="Begin another one: noesium chat")
    return found


async def _conversations(client: Client, agent_type: str, person: str) -> list[RunInfo]:
    """The person's conversations with an agent, newest first."""
    found = await client.list_runs(agent_type=agent_type, where={"user": person}, delegated=False)
    return list(found)


def _print_list(found: list[RunInfo], as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "run_id": one.run_id,
                "status": one.status,
                "begun": to_rfc3339(one.requested_ms),
                "about": one.label,
            }
            for one in found
        ]
        out_json(rows)
    elif found:
        shown = (
            (one.run_id, one.status, to_rfc3339(one.requested_ms), shorten(one.label, 60)) for one in found
        )
        table(("conversation", "status", "begun", "about"), shown)
    else:
        note("There are no conversations yet. Begin one: noesium chat")
