"""Root command `noesium`; maps the errors of all commands to exit codes and one line of error.

Decision record: each command has its own module, imported only when the command is called (`COMMANDS`),
because importing LangGraph, pydantic and the Kafka clients takes longer than `noesium --help` may take. The
help lines are written here for the same reason; a test compares them with the commands' own.
"""

from __future__ import annotations

import difflib
import errno
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Final

import click

from noesium_stream.cli.exits import CRASHED, EXIT_CODES, FAILED, INTERRUPTED, OK, UNAVAILABLE, USAGE
from noesium_stream.cli.output import note, say_error
from noesium_stream.errors import (
    AgentLoadError,
    ApprovalError,
    BrokerError,
    ConfigError,
    DeadLetterError,
    EffectDecisionError,
    EventStoreError,
    EventValidationError,
    GoalError,
    GraphError,
    InputDiffersError,
    KernelError,
    MemoryScopeError,
    NoesiumError,
    ProjectionLoadError,
    ProjectionNotFoundError,
    RunEndedError,
    RunNotFoundError,
    ScheduleError,
    SkillNotFoundError,
    ToolNotFoundError,
    TopicNotFoundError,
)
from noesium_stream.redaction import redacted

BROKEN_PIPE: Final = 141

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("runs.run", "Ask an agent a question and print its answer."),
    "chat": ("chat.chat", "Talk to an agent that remembers, and asks before it writes."),
    "worker": ("worker", "Run agents until Ctrl-C."),
    "workers": ("workers", "List the partitions of all agents: owner, epoch, lag, open runs, oldest step."),
    "agents": (
        "capabilities.agents",
        "List agents: who runs them, versions, health, open runs, and what they offer.",
    ),
    "capability": (
        "capabilities.capability",
        "List what agents offer one another, and say who is chosen for a call.",
    ),
    "tools": ("tools", "List the tools of agents, and accept what has changed about them."),
    "taint": ("runs.taint", "Show where the arguments of a run's tool calls come from."),
    "runs": ("runs.runs", "List runs, newest first."),
    "costs": ("runs.costs", "Show what calls of models took: calls, tokens and money."),
    "goals": ("runs.goals", "Show the goals that runs have set themselves, with their parts."),
    "budget": ("budget", "Say what users and tenants may spend on models, and show what they have spent."),
    "wait": ("runs.wait", "Wait until a run has ended, and print its result as `noesium run` does."),
    "show": ("runs.show", "Show what a run did, across agents: who, what, when, how long."),
    "events": ("runs.events", "Print the events of a run."),
    "tail": ("runs.tail", "Print the last events of all agents; with --follow also those to come."),
    "signal": ("runs.control", "Send a message to an open run."),
    "cancel": ("runs.control", "Ask an open run, and all runs below it, to end."),
    "schedule": ("schedule", "Start runs by the clock: cron, intervals, moments."),
    "approvals": ("runs.approvals", "List what runs wait for people to answer."),
    "approve": ("runs.approvals", "Answer a run's question with yes."),
    "reject": ("runs.approvals", "Answer a run's question with no."),
    "effects": ("runs.effect", "List effects that wait for a person to decide."),
    "effect": ("runs.effect", "Decide about effects of unknown outcome."),
    "verify": ("runs.verify", "Replay recorded runs against code and print the first difference."),
    "export": ("runs.export", "Write a run's journal to FILE, with the signatures of its records."),
    "replay": ("runs.replay", "Print the state of a run after one of its steps, as JSON."),
    "fork": ("runs.fork", "Show what a run would have done with other values after a step, or do it."),
    "diff": ("runs.diff", "Compare two runs step by step and print where they part."),
    "project": ("projections.project", "Fold the log into local state, and follow it."),
    "state": ("projections.state", "Print a projection's state, or one row of it."),
    "projections": ("projections.projections", "List projections: version, lag, rate, age, dead letters."),
    "dlq": ("projections.dlq", "List dead letters, and let them be taken again."),
    "snapshot": (
        "projections.snapshot",
        "Push projections' states to a folder or an object store, or pull them.",
    ),
    "a2a": ("a2a", "Open agents to others by A2A."),
    "mcp": ("mcp", "Open agents to others by MCP; it needs the extra mcp."),
    "memory": ("memory", "Show what is remembered, and why; forget a key, retract a source."),
    "erase": ("erase", "Erase a person: what was sealed with their key can never be read again."),
    "skills": ("skills", "List and check skill folders."),
    "topics": ("topics", "List the topics of the log."),
    "keys": ("keys", "Make keys for signatures, and say which of them a log trusts."),
    "doctor": ("doctor", "Examine settings, machine and log, and say what to do."),
    "security": ("security", "Prepare a Kafka that lets each name do what it has to, and no more."),
    "broker": ("broker", "Start and stop a real Apache Kafka on this machine."),
    "schema": ("schema", "Write and check the published schemas."),
    "config": ("config", "Print the settings in force and where each came from."),
    "new": ("new", "Make a project to begin with."),
    "guide": ("guide", "Print a guide, or list the guides."),
}
"""Command → (module below `noesium_stream.cli.commands`, one line of help)."""


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all names, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"noesium_stream.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for a misspelt name, suggest a similar one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            meant = f" Did you mean {close[0]}?" if close else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=EXIT_CODES,
)
@click.version_option(package_name="noesium-stream", prog_name="noesium")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors (also: NOESIUM_DEBUG=1).")
def cli(debug: bool) -> None:
    """Agents on an event log: run them, watch them, ask what they did."""
    if debug:
        os.environ["NOESIUM_DEBUG"] = "1"


def run(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Raises nothing except Ctrl-C outside a command."""
    _escape_what_cannot_be_encoded()
    try:
        with cli.make_context("noesium", list(sys.argv[1:] if args is None else args)) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        note("")
        note("interrupted")
        return INTERRUPTED
    except Exception as error:
        return _report(_first(error))
    return OK


def _escape_what_cannot_be_encoded() -> None:
    """Escape characters that the output cannot encode (it is not UTF-8, or the text has a lone surrogate)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group of failed tasks."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _report(error: BaseException) -> int:
    """Print an error for the user and return the exit code."""
    if isinstance(error, click.ClickException):
        return _usage_error(error)
    if isinstance(error, NoesiumError):
        return _known_error(error)
    if isinstance(error, BrokenPipeError):
        # The reader (`| head`) has closed the pipe. Without this the interpreter complains at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    if (
        isinstance(error, OSError)
        and error.filename
        and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    ):
        what, hint = "used", "Work where you may read and write; NOESIUM_HOME and --log name other places."
        if _is_of_a_start(error):
            what = "executed"
            hint = f"Let this user execute {error.filename!s}, and enter each folder above it."
        say_error(f"{error.filename!s} cannot be {what}: {error.strerror}.", hint)
        return UNAVAILABLE
    return _unexpected_error(error)


def _is_of_a_start(error: OSError) -> bool:
    """Whether the error is that of a program which could not be started."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename == subprocess.__file__


def exit_code(error: NoesiumError) -> int:
    """Map an error to an exit code: 2 for bad input, 3 for the log or its broker, else 1."""
    if isinstance(
        error,
        (
            ConfigError,
            AgentLoadError,
            ApprovalError,
            DeadLetterError,
            EffectDecisionError,
            RunNotFoundError,
            RunEndedError,
            ProjectionLoadError,
            ProjectionNotFoundError,
            ScheduleError,
            ToolNotFoundError,
            TopicNotFoundError,
            EventValidationError,
            GoalError,
            GraphError,
            InputDiffersError,
            MemoryScopeError,
            SkillNotFoundError,
        ),
    ):
        return USAGE
    if type(error) is KernelError:
        return USAGE  # the graph cannot be run; errors inside a run have classes of their own
    if isinstance(error, (EventStoreError, BrokerError)):
        return UNAVAILABLE
    return FAILED


def _known_error(error: NoesiumError) -> int:
    if os.environ.get("NOESIUM_DEBUG"):
        note("".join(traceback.format_exception(error)).rstrip("\n"))
    say_error(error.message, error.hint)
    return exit_code(error)


def _usage_error(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # its message is the whole help
        say_error("Give a command.", error.format_message())
        return USAGE
    hint = f"See: {context.command_path} --help" if context is not None else None
    say_error(error.format_message(), hint)
    return USAGE


def _unexpected_error(error: BaseException) -> int:
    text = "".join(traceback.format_exception(error))
    summary = (
        f"unexpected {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    )
    if os.environ.get("NOESIUM_DEBUG"):
        note(text.rstrip("\n"))
        say_error(summary)
        return CRASHED
    with tempfile.NamedTemporaryFile("w", prefix="noesium-", suffix=".traceback", delete=False) as file:
        file.write(redacted(text))
    say_error(summary, f"This is a fault of the program. The traceback is in {file.name}.")
    return CRASHED
