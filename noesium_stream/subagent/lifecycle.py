"""The life of a sub-agent's process, and what can be done with it (RFC-0005, sub-agent lifecycle).

CREATED -> RUNNING -> BUSY <-> IDLE -> TERMINATED. A busy one is terminated by force only. One that was never
asked may be terminated, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from noesium_stream.errors import SubagentStateError


class State(StrEnum):
    """A state of a sub-agent's process."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    BUSY = "BUSY"
    IDLE = "IDLE"
    TERMINATED = "TERMINATED"


_NEXT: Final[Mapping[State, frozenset[State]]] = {
    State.CREATED: frozenset({State.RUNNING, State.TERMINATED}),
    State.RUNNING: frozenset({State.BUSY, State.TERMINATED}),
    State.BUSY: frozenset({State.IDLE, State.TERMINATED}),
    State.IDLE: frozenset({State.BUSY, State.TERMINATED}),
    State.TERMINATED: frozenset(),
}


class Request(NamedTuple):
    """A request to a sub-agent: one line in, one answer out.

    `request_id` is the call's idempotency key, `task` the capability, `payload` its input, `context` what the
    program may want to know of the run.
    """

    request_id: str
    task: str
    payload: dict[str, Any]
    context: dict[str, Any]


class Answer(NamedTuple):
    """An answer to a request: a value, or the text of the program's own error."""

    value: Any = None
    error: str | None = None


@dataclass(slots=True)
class Life:
    """The state of one process, from before its start to its end; a restart begins another life.

    `reason` is why it has ended.
    """

    who: str
    state: State = State.CREATED
    reason: str = ""

    @property
    def can_be_asked(self) -> bool:
        """Whether it takes a request now."""
        return self.state in (State.RUNNING, State.IDLE)

    def move(self, to: State, reason: str = "", *, force: bool = False) -> None:
        """Change the state.

        Raises:
            SubagentStateError: the present state does not lead there, or only by force.
        """
        if to not in _NEXT[self.state]:
            raise SubagentStateError(f"{self.who} is {self.state}: it cannot become {to}.")
        if self.state is State.BUSY and to is State.TERMINATED and not force:
            raise SubagentStateError(
                f"{self.who} is {self.state}: it works at a request.",
                hint="Wait for its answer, or terminate it by force.",
            )
        self.state, self.reason = to, reason


class SubagentAdapter(Protocol):
    """A sub-agent, as its owner drives it; it has one process at a time.

    Its owner sends no request before the answer to the one before.
    """

    @property
    def life(self) -> Life:
        """The life of its present process, or of the last one."""

    async def spawn(self) -> None:
        """Start its process: CREATED to RUNNING.

        Raises `SubagentStartError`, and the state is TERMINATED.
        """

    async def send(self, request: Request) -> None:
        """Write a request: to BUSY.

        Raises `CapabilityError` if it cannot be written down, and then nothing is sent; `SubagentError` if
        the process does not take it.
        """

    async def receive(self) -> Answer:
        """Return the answer to the request: BUSY to IDLE.

        Raises `SubagentExitedError`, `SubagentProtocolError`: there will be none, terminate it by force.
        """

    async def health_check(self) -> bool:
        """Return whether it can be asked; one whose process has ended is TERMINATED from then on."""

    async def restart(self, reason: str = "") -> None:
        """Terminate it by force if it still runs, and spawn it."""

    async def terminate(self, reason: str = "", *, force: bool = False) -> None:
        """End its process and all that it has started, for this reason; does nothing if there is none.

        Raises `SubagentStateError`: it is BUSY, and `force` is not given.
        """
