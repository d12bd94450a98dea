"""One run on the command line: its agents in this process, its progress, its result."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from noesium_stream import agent as agent_layer
from noesium_stream import worker as worker_layer
from noesium_stream.cli.agents import AgentChoice, AgentClass, find_agent, with_runs
from noesium_stream.cli.commands.runs.patience import Patience, WorkerCommands
from noesium_stream.cli.output import note
from noesium_stream.cli.pieces import PiecePrinter, show_progress
from noesium_stream.cli.progress import progress_line
from noesium_stream.cli.session import is_embedded, on_log
from noesium_stream.client import Client, Run
from noesium_stream.config import Loaded
from noesium_stream.errors import ConfigError
from noesium_stream.log import EventLog
from noesium_stream.worker.process_settings import tune_process

if TYPE_CHECKING:
    from noesium_stream.agent import BaseGraphicAgent
    from noesium_stream.worker import Worker


class Question:
    """One command line: the agent, its options, and the way to follow its run.

    Args:
        choice: the agent's class and the options of this command line.
        reference: the agent's reference, as it was given.
        loaded: the settings.
        caller: runs in place of the agent, in this process on any log.
        command: goes on with a run, but for ` --resume RUN`.
    """

    def __init__(
        self,
        choice: AgentChoice,
        reference: str,
        loaded: Loaded,
        *,
        caller: type[BaseGraphicAgent] | None = None,
        command: str | None = None,
    ) -> None:
        self._choice = choice
        self._reference = reference
        self._loaded = loaded
        self._defaults = {"model": loaded.agent.model}
        self._embedded = caller is not None or is_embedded(loaded.noesium.log)
        self._command = command or f"noesium run {reference}"
        self.agent: type[BaseGraphicAgent] = caller or with_runs(reference, choice.agents[reference])
        self._options = choice.options_for(self.agent, self._defaults)
        self._here: frozenset[str] = frozenset()
        self._shown = ""

    def _worker_line(self, line: str) -> None:
        """Print a line of this process's worker, but not about the run whose events are shown."""
        if not self._shown or not line.startswith((f"run {self._shown} ", f"run {self._shown}:")):
            note(line)

    async def begin(self, client: Client, input_: dict[str, Any], key: str | None, **options: Any) -> Run:
        """Start a run; `options` are those of `Client.start`."""
        run = await client.start(self.agent.agent_type, input_, idempotency_key=key, **options)
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

    def check(self, input_: dict[str, Any]) -> None:
        """Refuse an input that the agent, or, in this process, the agent with its options, does not take.

        Raises:
            ConfigError: the message says what is wrong with it.
        """
        self.agent.check_input(input_)
        if self._embedded:
            self.agent.check_start(input_, self._options, self._loaded.noesium.home)

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
        if pieces is not None or sys.stderr.isatty():
            shown.append(asyncio.create_task(show_progress(run)))
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
        return f"{self._command} --resume {run.id}{on_log(self._loaded)}"
