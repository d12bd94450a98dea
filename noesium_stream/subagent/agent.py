"""Agent class from a program of the command line: each run sends it one request (RFC-0005).

Decision record: a run has two effects. The first, `TYPE:ready`, waits for the session's turn and for a
process; it is repeated without harm. The second is the request, of the class that the author declares: a
worker that dies meanwhile leaves only requests in an unknown state that have reached the program, and no call
that was waiting. The errors of the program are the last node's, because a node that fails emits no events,
and what became of the process is told by events.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

from noesium_stream.agent.base import AgentContext, BaseGraphicAgent
from noesium_stream.capabilities.capability_set import CapabilitySet
from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import CapabilityError, ConfigError
from noesium_stream.event.standard import Capability
from noesium_stream.kernel import kernel_node
from noesium_stream.kernel.retry import Retries
from noesium_stream.log.topics import agent_name
from noesium_stream.programs.program import MAX_LINE, program
from noesium_stream.subagent.call import Asked, Call, error_in
from noesium_stream.subagent.daemon import CliDaemon
from noesium_stream.subagent.declared import (
    Declared,
    at_least_one,
    check_fields,
    check_here,
    first_state,
    offers_of,
)
from noesium_stream.subagent.protocol import JsonLines
from noesium_stream.subagent.sessions import Limits, Sessions
from noesium_stream.subagent.text_lines import TextLines


class ProgramAgent(BaseGraphicAgent):
    """An agent that has a program; see `cli_subagent`, which makes its subclasses.

    Class attributes:
        declared: what the author has declared.
    """

    declared: ClassVar[Declared]

    def __init__(self, options: BaseModel, context: AgentContext) -> None:
        super().__init__(options, context)
        declared = self.declared
        self._sessions = Sessions(
            declared.who,
            lambda: CliDaemon(declared.program, declared.protocol, declared.who),
            declared.limits,
            declared.restarts,
            context.clock,
        )

    async def start(self) -> None:
        """Refuse to serve a program that is not here."""
        check_here(self.declared)

    async def stop(self) -> None:
        """End its processes."""
        await self._sessions.stop()

    @classmethod
    def check_input(cls, input: dict[str, Any]) -> None:
        """See `BaseGraphicAgent.check_input`."""
        if len(cls.declared.offers) > 1:
            return  # the command says which
        try:
            first_state(cls.declared, input, None)
        except CapabilityError as error:
            raise ConfigError(error.message, hint=error.hint) from error

    def get_state_class(self) -> type[Any]:
        """See `BaseGraphicAgent.get_state_class`."""
        return Asked

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(Asked)
        graph.add_node("request", self.request)
        graph.add_node("answer", self.answer)
        graph.add_edge(START, "request")
        graph.add_edge("request", "answer")
        graph.add_edge("answer", END)
        return graph

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        """See `BaseGraphicAgent.initial_state`."""
        return first_state(self.declared, input, capability_id)

    @kernel_node(deterministic=False, entropy_sources=["program"])
    async def request(self, state: Asked) -> dict[str, Any]:
        """Call the program."""
        return await Call(self.declared, self._sessions, state).outcome()

    async def answer(self, state: Asked) -> dict[str, Any]:
        """Fail with the error of the call, if it has one."""
        error = error_in(state)
        if error is not None:
            raise error
        return {}

    def result(self, state: dict[str, Any]) -> Any:
        """See `BaseGraphicAgent.result`."""
        return state["result"]


def cli_subagent(
    agent_type: str,
    command: Sequence[str],
    capabilities: Sequence[Callable[..., Any] | Capability],
    *,
    version: str = "1.0.0",
    protocol: JsonLines | TextLines | None = None,
    session: str | None = None,
    environment: Sequence[str] = ("PATH",),
    folder: str | Path | None = None,
    timeout: Duration = 30,
    retries: Retries | None = None,
    restarts: Retries | None = None,
    approvers: Sequence[str] = (),
    patience: Duration = timedelta(days=1),
    places: int = 8,
    waiting: int = 100,
    idle: Duration = timedelta(minutes=5),
    max_answer: int = MAX_LINE,
) -> type[BaseGraphicAgent]:
    """An agent class that offers a program of the command line as its capabilities (RFC-0005).

        @capability("numbers.sum", side_effects=SideEffectClass.PURE)
        def total(numbers: list[float]) -> float: ...

        AGENT = cli_subagent("sums", ["jq", "--unbuffered", "-c", "…"], [total])

    Other agents call it with `await step.invoke("numbers.sum", {"numbers": [1, 2]})`. Each call is a run of
    this agent, which sends one request to the process of its session and waits for the answer. The request is
    an effect of the capability's class: if the worker dies in the middle of an external one, its outcome is
    unknown, and a person decides.

    In each worker process a session has one process of the program, from its first call until it was idle for
    `idle`; calls of a session go one after the other. What goes wrong with a program (silence, an exit,
    output that is no answer) is an error of the one call; the process is killed, with all that it has
    started, and started again with the next call, after growing pauses. If it fails too often in a row, a
    person is asked whether to try on.

    Args:
        agent_type: its name for good, a part of topics.
        command: the program and its arguments; no shell reads it.
        capabilities: functions that are marked by `@capability` and declare what goes in and out (their
            bodies are never called), or `Capability` objects. Their ids are the tasks of the requests.
        version: of the agent.
        protocol: what the program speaks: `JsonLines()` if nothing is said, or `TextLines(…)`.
        session: the field of the input that names the session; None: all calls of one tree of runs are one.
        environment: the variables that it gets and no others: `NAME` of the worker's, or `NAME=VALUE`.
        folder: its current folder; None: an empty one, which is removed with the process.
        timeout: longest time for one answer.
        retries: of a request that failed, as `Step.effect` takes them; None: the call fails.
        restarts: pauses between starts of a process that fails, and after how many failures in a row
            (`max_attempts`) a person is asked; by default 5, from 1 s up to 1 min.
        approvers: who may answer that question; empty: anyone.
        patience: how long the question is open; then the call fails.
        places: most processes in one worker.
        waiting: most calls in one worker that wait for their turn.
        idle: time after which an idle process ends.
        max_answer: most bytes of an answer.

    Raises:
        ConfigError: something of this is not valid.
    """
    kind = agent_name(agent_type)
    declared = Declared(
        agent_type=kind,
        program=program(command, environment, folder, max_answer, f"the agent {kind}"),
        offers=offers_of(kind, capabilities),
        protocol=protocol or JsonLines(),
        session=session,
        limits=Limits(
            places=at_least_one(places, "places", kind),
            waiting=at_least_one(waiting, "waiting", kind),
            timeout_s=in_seconds(timeout, "timeout", positive=True),
            idle_s=in_seconds(idle, "idle", positive=True),
        ),
        retries=retries,
        restarts=restarts or Retries(max_attempts=5),
        approvers=tuple([approvers] if isinstance(approvers, str) else approvers),
        patience_s=in_seconds(patience, "patience", positive=True),
    )
    check_fields(declared)
    members = {
        "agent_type": kind,
        "version": version,
        "capabilities": tuple(CapabilitySet(offer.capability for offer in declared.offers.values())),
        "declared": declared,
        "__module__": sys._getframe(1).f_globals.get("__name__", __name__),
    }
    return type(kind, (ProgramAgent,), members)
