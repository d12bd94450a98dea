"""`noesium worker`: a process that runs agents."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from noesium_stream import agent as agent_layer
from noesium_stream import worker as worker_layer
from noesium_stream.cli.agents import AgentChoice, AgentClass, AgentCommand
from noesium_stream.cli.commands.supervise import FLAG, supervise
from noesium_stream.cli.exits import FAILED, OK, UNAVAILABLE
from noesium_stream.cli.last_call import LEAVE_S, LastCall
from noesium_stream.cli.output import note
from noesium_stream.cli.session import (
    PARTITIONS_OPTION,
    asynchronous,
    on_log,
    open_configured,
    settings,
    shared_log_option,
)
from noesium_stream.clock import SystemClock
from noesium_stream.config import Loaded
from noesium_stream.errors import ConfigError
from noesium_stream.log import EventLog
from noesium_stream.log.generations import generations_in
from noesium_stream.worker.gc_tuning import spare_what_is_loaded
from noesium_stream.worker.process_settings import tune_process

if TYPE_CHECKING:
    from noesium_stream.worker import Worker


@click.command(
    "worker",
    cls=AgentCommand,
    epilog="An agent's own options: noesium worker AGENT --help",
    no_args_is_help=True,
)
@click.argument("agent", nargs=-1, required=True)
@click.option(
    "--also",
    multiple=True,
    metavar="[TYPE=]MODULE[:NAME]",
    help="Another version of one of these agents: open runs that began with it go on with it here.",
)
@shared_log_option
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Partitions of topics that are made new; an agent that has run before gets more of them by noesium "
    "topics grow. [default: 8]",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    metavar="N",
    help="Runs of each agent to work at, at once; those that only wait do not count. [default: 200]",
)
@click.option(
    "--health",
    "health",
    metavar="[HOST:]PORT",
    callback=lambda context, parameter, value: None if value is None else _address(value),
    help="Serve /livez and /readyz over HTTP there. [default host: 127.0.0.1]",
)
@click.option(
    "--on-approval",
    metavar="COMMAND",
    help="Run this once for each question that a run asks: it gets JSON on standard input.",
)
@click.option(
    "--approval-webhook",
    metavar="URL",
    help="Post the same JSON there. [better: NOESIUM_APPROVAL_WEBHOOK, which nobody sees in a list of "
    "processes]",
)
@click.option(
    FLAG,
    "restart",
    is_flag=True,
    help="Run in a child process, and start it again after a kill or a fault.",
)
@click.pass_obj
@asynchronous
async def worker_command(
    choice: AgentChoice,
    agent: tuple[str, ...],
    also: tuple[str, ...],
    log_url: str | None,
    partitions: int | None,
    concurrency: int | None,
    health: tuple[str, int] | None,
    on_approval: str | None,
    approval_webhook: str | None,
    restart: bool,
) -> None:
    """Run agents until Ctrl-C or SIGTERM.

    AGENT is a module that exports an agent (agents.librarian), module:Class, or module:graph of a LangGraph
    graph; several may be given. After it stops, open runs go on in another worker, or in this one when it is
    started again; it first waits for the outcomes of effects under way (8 s at most) and records them. Failed
    runs, unknown outcomes and dead letters are reported on standard error.

    New runs start with the graph of AGENT. A run that was started with another version of it goes on when its
    partition belongs to a worker that carries that version: --also orders_v1:graph.
    """
    for name in agent:
        if agent.count(name) > 1:
            raise click.UsageError(f"{name} is given twice: one worker runs an agent once.")
    if restart:
        raise click.exceptions.Exit(await supervise(sys.argv[1:]))
    loaded = settings(
        log_url,
        partitions=partitions,
        concurrency=concurrency,
        on_approval=on_approval,
        approval_webhook=approval_webhook,
    )
    config = loaded.noesium
    if config.log.startswith("memory:"):
        raise ConfigError(
            "A log in memory is seen by its own process alone: nobody could ask this worker.",
            hint="Give a log that several processes see with --log: sqlite:///PATH or kafka://HOST:PORT.",
        )
    defaults = {"model": loaded.agent.model}
    agents = _distinct(choice, defaults)
    others = [(kind, choice.options_for(kind, defaults)) for kind in choice.also]
    stop = _Stop()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    try:
        await _work(loaded, agents, others, stop, health)
    except asyncio.CancelledError:
        if not stop.asked.is_set():
            raise
    stop.ended()
    note("stopped")


async def _work(
    loaded: Loaded,
    agents: list[tuple[AgentClass, Any]],
    others: list[tuple[AgentClass, Any]],
    stop: _Stop,
    health: tuple[str, int] | None,
) -> None:
    """Open the log and run the worker until asked to stop."""
    config = loaded.noesium
    hook = worker_layer.ApprovalHook(
        command=config.on_approval,
        webhook=config.approval_webhook,
        log=loaded.shown_log,
        progress=note,
        clock=SystemClock(),
    )
    log = await open_configured(loaded)
    try:
        worker = worker_layer.Worker(
            log,
            agents,
            home=config.home,
            progress=note,
            runtime_id=config.runtime_id,
            llm_config=loaded.agent.llm_config,
            concurrency=config.concurrency,
            seen_for=timedelta(days=config.seen_days),
            seen_count=config.seen_count,
            other_versions=others,
            on_approval=hook.tell,
            watch=True,
        )
        stop.worker = worker
        if loaded.sources["partitions"] == PARTITIONS_OPTION:
            await _tell_of_fewer(loaded, log, [kind.agent_type for kind, _ in agents])
        tune_process(handlers=any(issubclass(kind, agent_layer.BaseHandler) for kind, _ in agents))
        async with _served(worker, health), hook, worker:
            stop.started()
            spare_what_is_loaded()
            names = ", ".join(f"{kind.agent_type} {kind.version}" for kind, _ in agents)
            beside = ", ".join(f"{kind.agent_type} {kind.version}" for kind, _ in others)
            names += f" (also {beside})" if beside else ""
            note(f"{names}: at work on {log.url}, process {os.getpid()}; Ctrl-C ends it")
            await _until(stop.asked, worker)
    finally:
        await log.close()


async def _tell_of_fewer(loaded: Loaded, log: EventLog, agent_types: list[str]) -> None:
    """Print which agents have fewer partitions than requested, and the command that adds them."""
    layout, wanted = await log.layout(), loaded.noesium.partitions
    for agent_type in agent_types:
        found = generations_in(layout, log.topology, agent_type)
        if found and found[-1].partitions < wanted:
            note(
                f"{agent_type} has {found[-1].partitions} partitions and keeps them, {wanted} are for new "
                f"topics; for more: noesium topics grow {agent_type} --partitions {wanted}{on_log(loaded)}"
            )


def _served(worker: Worker, health: tuple[str, int] | None) -> AbstractAsyncContextManager[object]:
    """Make the health server, if requested; it starts first, so that it answers while the worker starts."""
    return (
        nullcontext() if health is None else worker_layer.HealthServer(health, worker.health, SystemClock())
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise ConfigError(f"--health {text}: {port!r} is no port.", hint="Write [HOST:]PORT, such as 8080.")
    return host or "127.0.0.1", int(port)


class _Stop:
    """Handler of SIGTERM: cancels a starting worker, and ends a working one in order.

    If ending in order takes too long, the process ends without it. Create it in the task that starts the
    worker.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.worker: Worker | None = None
        self._starting = asyncio.current_task()
        self._over = False
        self._last_call = LastCall(self._last_words)

    def __call__(self) -> None:
        if not self.asked.is_set():
            note("told to stop: nothing new begins, open runs go on in the next worker")
            self._last_call.begin()
            if self._starting is not None:
                self._starting.cancel()
        self.asked.set()

    def started(self) -> None:
        self._starting = None

    def ended(self) -> None:
        """Note that all partitions are handed over; threads that still wait for a broker do not matter."""
        self._over = True

    def _last_words(self) -> tuple[str, int]:
        if self._over:
            return "", OK
        leaving = {} if self.worker is None else self.worker.leaving()
        doing = "; ".join(f"{agent} is {what}" for agent, what in leaving.items()) or "the log is not closed"
        text = (
            f"error: not done {LEAVE_S:g} s after it was told to stop, left without handing over: {doing}."
            "\n  Nothing that the log has acknowledged is lost: the next worker goes on from there. "
            "Look whether the log answers: noesium topics"
        )
        return text, FAILED if worker_layer.STOPPING in leaving.values() else UNAVAILABLE


def _distinct(choice: AgentChoice, defaults: dict[str, Any]) -> list[tuple[AgentClass, Any]]:
    agents: dict[str, tuple[AgentClass, Any]] = {}
    for reference, kind in choice.agents.items():
        if kind.agent_type in agents:
            raise ConfigError(f"{reference} is a second agent of type {kind.agent_type!r} in this worker.")
        agents[kind.agent_type] = (kind, choice.options_for(kind, defaults))
    return list(agents.values())


async def _until(stopped: asyncio.Event, worker: Worker) -> None:
    """Return when asked to stop; raise the error that ends the worker before."""
    tasks = [asyncio.create_task(stopped.wait()), asyncio.create_task(worker.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
