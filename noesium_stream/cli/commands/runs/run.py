"""`noesium run`: ask an agent a question, watch it work, get the answer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from noesium_stream import agent as agent_layer
from noesium_stream import worker as worker_layer
from noesium_stream.cli.agents import AgentChoice, AgentClass, AgentCommand, find_agent, with_runs
from noesium_stream.cli.answer import print_answer, result_json
from noesium_stream.cli.commands.runs.given_input import GivenInput
from noesium_stream.cli.commands.runs.patience import Patience, WorkerCommands
from noesium_stream.cli.exits import EXIT_CODES
from noesium_stream.cli.output import note, out_json
from noesium_stream.cli.pieces import PiecePrinter
from noesium_stream.cli.progress import progress_line
from noesium_stream.cli.session import (
    acting_name,
    asynchronous,
    given_run,
    is_embedded,
    json_option,
    log_option,
    must_exist,
    on_log,
    open_configured,
    settings,
)
from noesium_stream.cli.spans import Span
from noesium_stream.client import Client, Run
from noesium_stream.config import Loaded
from noesium_stream.errors import ConfigError
from noesium_stream.log import EventLog
from noesium_stream.worker.process_settings import tune_process

if TYPE_CHECKING:
    from noesium_stream.agent import BaseGraphicAgent
    from noesium_stream.worker import Worker


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
    loaded = settings(log_url)
    asked = _Question(choice, agent, loaded)
    # Check the input before anything is opened or created.
    input_ = asked.input(question) if question is not None else given or {}
    if resumed is not None:
        must_exist(loaded)
    else:
        asked.agent.check_input(input_)
    log = await open_configured(loaded)
    try:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(log, agent_id=await acting_name(log)))
            # Report a missing run before the agents start, which may have much to read.
            found = None if resumed is None else await asked.find(client, resumed)
            worker = await stack.enter_async_context(asked.workers(log))
            run = found or await asked.begin(client, input_, key, deadline)
            pieces = PiecePrinter(as_result=streams) if streams or sys.stderr.isatty() else None
            result, events = await asked.follow(run, worker, pieces)
            if as_json:
                out_json(result_json(run.id, result, events, log.url))
            elif not (streams and pieces is not None and pieces.printed):
                print_answer(result)
    finally:
        await log.close()


class _Question:
    """One command line: the agent, its options, and the way to follow its run."""

    def __init__(self, choice: AgentChoice, reference: str, loaded: Loaded) -> None:
        self._choice = choice
        self._reference = reference
        self._loaded = loaded
        self._defaults = {"model": loaded.agent.model}
        self._embedded = is_embedded(loaded.noesium.log)
        self.agent: type[BaseGraphicAgent] = with_runs(reference, choice.agents[reference])
        self._options = choice.options_for(self.agent, self._defaults)
        self._here: frozenset[str] = frozenset()
        self._shown = ""

    def _worker_line(self, line: str) -> None:
        """Print a line of this process's worker, but not about the run whose events are shown."""
        if not self._shown or not line.startswith((f"run {self._shown} ", f"run {self._shown}:")):
            note(line)

    async def begin(
        self, client: Client, input_: dict[str, Any], key: str | None, deadline: timedelta | None
    ) -> Run:
        """Start a run."""
        run = await client.start(self.agent.agent_type, input_, idempotency_key=key, deadline=deadline)
        self._shown = run.id
        if key is not None:
            await run.check_input(input_)
        return run

    async def find(self, client: Client, run_id: str) -> Run:
        """Find the run to resume; it must belong to this agent."""
        run = await client.get_run(run_id)
        self._shown = run.id
        if run.agent_type != self.agent.agent_type:
            raise ConfigError(
                f"Run {run.id} is one of {run.agent_type}, and {self._reference} is {self.agent.agent_type}."
            )
        return run

    def input(self, question: str) -> dict[str, Any]:
        """Make the run's input."""
        if not question.strip():
            raise ConfigError("The question is empty.", hint="Give it as one argument, in quotes.")
        return self.agent.input_from_question(question, self._options)

    @asynccontextmanager
    async def workers(self, log: EventLog) -> AsyncIterator[Worker | None]:
        """Start a worker for the agent and its companions on an embedded log; elsewhere yield None."""
        if not self._embedded:
            yield None
            return
        agents: list[tuple[AgentClass, Any]] = [(self.agent, self._options)]
        for reference in self.agent.companions:
            companion = find_agent(reference)
            agents.append((companion, self._choice.options_for(companion, self._defaults)))
        self._here = frozenset(kind.agent_type for kind, _ in agents)
        config = self._loaded.noesium
        tune_process(handlers=any(issubclass(kind, agent_layer.BaseHandler) for kind, _ in agents))
        # Companions first: their capabilities must be registered when the agent asks for them.
        async with worker_layer.Worker(
            log,
            agents[::-1],
            home=config.home,
            progress=self._worker_line,
            runtime_id=config.runtime_id,
            llm_config=self._loaded.agent.llm_config,
            concurrency=config.concurrency,
            seen_for=timedelta(days=config.seen_days),
            seen_count=config.seen_count,
        ) as worker:
            yield worker

    async def follow(self, run: Run, worker: Worker | None, pieces: PiecePrinter | None) -> tuple[Any, int]:
        """Show the run's progress; return its result and the number of its events."""
        note(f"run {run.id}")
        shown = [] if pieces is None else [asyncio.create_task(pieces.follow(run))]
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(self._watch(run))]
        if worker is not None:
            tasks.append(asyncio.create_task(worker.wait()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in reversed(tasks):
                if task.done():
                    task.result()  # raise the error of a failed worker: the run cannot go on
            await asyncio.gather(*shown)  # they end with the run
            return await run.result(), tasks[0].result()
        except asyncio.CancelledError:
            note("")
            note(f"The run stays on the log. Go on with: {self._how_to_resume(run)}")
            raise
        finally:
            for task in (*tasks, *shown):
                task.cancel()
            await asyncio.gather(*tasks, *shown, return_exceptions=True)

    async def _watch(self, run: Run) -> int:
        """Print a line for each step until the run has ended; return the number of its events."""
        count = 0
        commands = WorkerCommands(self._choice, self._reference, self._loaded.shown_log)
        async with Patience(run.id, commands, here=self._here) as patience:
            async for event in run.events():
                count += 1
                patience.see(event)
                line = progress_line(event, run.id, on_log(self._loaded))
                if line:
                    note(line)
        return count

    def _how_to_resume(self, run: Run) -> str:
        return f"noesium run {self._reference} --resume {run.id}{on_log(self._loaded)}"
