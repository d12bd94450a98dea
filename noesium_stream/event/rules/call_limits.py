"""Limits of calls between agents: depth and cycles of a tree of runs, and the calls of one run.

The caller judges before it sends, and the called agent again: a caller may be wrong or hostile. What a
command says of the runs above it cannot be proved here, but has to be consistent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from noesium_stream.errors import CallLimitError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.trust.budget import Budget

MAX_DEPTH: Final = 16
MAX_CALLS: Final = 10_000
MAX_OPEN_CALLS: Final = 2_000


class CallLimits(NamedTuple):
    """Limits of the calls of an agent's runs.

    Attributes:
        depth: how many runs may be above a called one.
        calls: calls of one run.
        open_calls: of these, without an answer at the same time.
        budget: what a run may spend on models; None: what its command says.
    """

    depth: int = MAX_DEPTH
    calls: int = MAX_CALLS
    open_calls: int = MAX_OPEN_CALLS
    budget: Budget | None = None

    def check_number(self, calls: int, open_calls: int) -> None:
        """Check that a run that has made so many calls may make another one.

        Raises:
            CallLimitError
        """
        if calls >= self.calls:
            raise CallLimitError(
                f"The run has made {calls:,} calls of other agents, as many as its agent allows.",
                hint="Raise `max_calls` of the agent, or let another run do a part.",
            )
        if open_calls >= self.open_calls:
            raise CallLimitError(
                f"The run waits for {open_calls:,} answers of other agents, as many as its agent allows.",
                hint="Use step.invoke_many, which bounds them, or raise `max_open_calls` of the agent.",
            )

    def check_chain(self, path: Sequence[str], depth: int, target: str, allow_cycle: bool) -> None:
        """Check that runs of these agents, from the root to the caller, may call an agent of type `target`.

        `depth` is that of the called run.

        Raises:
            CallLimitError
        """
        if max(depth, len(path)) > self.depth:
            raise CallLimitError(
                f"The call is {max(depth, len(path))} levels deep, and {self.depth} are allowed: "
                f"{_chain(path, target)}.",
                hint="An agent that calls itself has to end at some level; else raise `max_call_depth`.",
            )
        if target in path and not allow_cycle:
            raise CallLimitError(
                f"The call leads back to {target}: {_chain(path, target)}.",
                hint="If that is meant and ends, say so in each of its calls: allow_cycle=True.",
            )

    def check_command(self, command: EventEnvelope, agent_type: str) -> None:
        """Check the call that would start a run of `agent_type`.

        Raises:
            CallLimitError: as `check_chain`, or what it says of its callers cannot be true.
        """
        payload: dict[str, Any] = command.payload
        path: list[str] = payload.get("path") or []
        depth = command.trace.depth + 1
        if path and (len(path) > depth or path[-1] != command.producer.agent_type):
            raise CallLimitError(f"The call's chain of callers is wrong: {_chain(path, agent_type)}.")
        self.check_chain(path, depth, agent_type, bool(payload.get("allow_cycle")))


def path_of(command: EventEnvelope, agent_type: str) -> tuple[str, ...]:
    """The agent types of a run and of those above it, from the root on, as its command says."""
    return (*(command.payload.get("path") or ()), agent_type)


def _chain(path: Sequence[str], target: str) -> str:
    return " → ".join((*path, target))
