"""Notes of `noesium run` when no worker answers: the missing agent and the command that starts it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from noesium_stream.cli.agents import AgentChoice, AgentClass, find_agent
from noesium_stream.cli.output import note, shorten
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.errors import AgentLoadError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import ANSWERS, CALLS
from noesium_stream.event.standard import (
    CapabilityExpired,
    CapabilityRefused,
    CapabilityRequested,
    CapabilityUnresolved,
)

_ENDS: Final = ANSWERS | {CapabilityUnresolved.TYPE, CapabilityRefused.TYPE, CapabilityExpired.TYPE}

PATIENCE_S: Final = 15.0
"""Time without an answer after which the user is told, in seconds."""


class WorkerCommands:
    """The commands that start workers of an agent and of its companions, with the options given here.

    Args:
        choice: the agent's class and the options of this command line.
        reference: the agent's reference, as it was given.
        log: the log's URL without secrets.
    """

    def __init__(self, choice: AgentChoice, reference: str, log: str) -> None:
        self._choice = choice
        self._references = (reference, *choice.agents[reference].companions)
        self._log = log

    def all(self) -> list[str]:
        """Return the command for the agent, then one for each companion."""
        return [self._command(reference, self._load(reference)) for reference in self._references]

    def of(self, agent_type: str) -> str | None:
        """Return the command for agents of this type; None: the type is not a companion."""
        for reference in self._references:
            agent = self._load(reference)
            if agent is not None and agent.agent_type == agent_type:
                return self._command(reference, agent)
        return None

    def _load(self, reference: str) -> AgentClass | None:
        """Load a companion's class; None: it is not installed here, and may run elsewhere."""
        try:
            return self._choice.agents.get(reference) or find_agent(reference)
        except AgentLoadError:
            return None

    def _command(self, reference: str, agent: AgentClass | None) -> str:
        options = [] if agent is None else self._choice.arguments_for(agent)
        return shlex.join(["noesium", "worker", reference, *options, "--log", self._log])


class Patience:
    """Follows one run's events and prints a note when the run, or a call of it, gets no answer for a while.

    Args:
        run_id: the run.
        commands: the commands that start workers.
        here: agent types that this process runs itself, whose workers need not be started.
        clock: clock of the wait.
        say: prints a note.

    Use it as an async context manager; each capability is named once.
    """

    def __init__(
        self,
        run_id: str,
        commands: WorkerCommands,
        *,
        here: frozenset[str] = frozenset(),
        clock: Clock | None = None,
        say: Callable[[str], None] = note,
    ) -> None:
        self._run_id = run_id
        self._commands = commands
        self._here = here
        self._clock = clock or SystemClock()
        self._say = say
        self._waits: dict[str, asyncio.Task[None]] = {}
        self._named: set[str] = set()

    async def __aenter__(self) -> Self:
        self._waits[self._run_id] = asyncio.create_task(self._for_run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wait in self._waits.values():
            wait.cancel()
        await asyncio.gather(*self._waits.values(), return_exceptions=True)

    def see(self, event: EventEnvelope) -> None:
        """Take the next event of the run's journal."""
        payload = event.payload
        if event.event_type == "run.started":
            self._settle(payload["run_id"])
        elif event.event_type in _ENDS:
            self._settle(payload.get("call_id", ""))
        elif event.event_type == CapabilityRequested.TYPE:
            wait = self._for_provider(payload["capability_id"], payload.get("version_range"))
            self._waits[payload["call_id"]] = asyncio.create_task(wait)
        elif event.event_type in CALLS:
            self._settle(payload["run_id"])
            if self._is_call_elsewhere(payload):
                wait = self._for_call(payload["capability_id"], payload.get("target_agent_type"))
                self._waits[payload["run_id"]] = asyncio.create_task(wait)

    def _is_call_elsewhere(self, payload: dict[str, Any]) -> bool:
        whom = payload.get("target_agent_type")
        return payload.get("caller_run_id") == self._run_id and whom not in self._here

    def _settle(self, waited_for: str) -> None:
        wait = self._waits.get(waited_for)
        if wait is not None:
            wait.cancel()

    async def _for_run(self) -> None:
        await self._clock.sleep(PATIENCE_S)
        own, *companions = self._commands.all()
        whom = "workers of it and of those it delegates to" if companions else "a worker"
        self._say(
            f"Nobody has taken up the run for {PATIENCE_S:.0f} s. It waits on the log; start {whom}:\n"
            + "\n".join(f"  {command}" for command in (own, *companions))
        )

    async def _for_provider(self, capability_id: str, version_range: str | None) -> None:
        await self._clock.sleep(PATIENCE_S)
        wanted = shorten(f"{capability_id} {version_range or ''}".rstrip(), 100)
        if wanted in self._named:
            return
        self._named.add(wanted)
        self._say(
            f"Nobody has offered {wanted} for {PATIENCE_S:.0f} s. The run waits on the log; check the name, "
            "or start a worker of an agent that offers it."
        )

    async def _for_call(self, capability_id: str, agent_type: str | None) -> None:
        await self._clock.sleep(PATIENCE_S)
        if capability_id in self._named:
            return
        self._named.add(capability_id)
        if agent_type is None:
            self._say(
                f"Nobody has done a task of {capability_id} for {PATIENCE_S:.0f} s. It waits on the log; if "
                f"no worker runs of an agent that has {capability_id} in its `tasks`, start one."
            )
            return
        command = self._commands.of(agent_type)
        advice = f"start one:\n  {command}" if command else "start one."
        self._say(
            f"{agent_type} has not answered {capability_id} for {PATIENCE_S:.0f} s. The call waits on the "
            f"log; if no worker of {agent_type} runs, {advice}"
        )
