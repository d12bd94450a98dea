"""Sessions of a sub-agent in one worker process: whose turn it is, and the process of each session.

A call is a `Visit`: `ready` waits for the session's turn and for a process that can be asked, and `ask` sends
one request. They are apart because only the second reaches the program: a worker that dies while a call waits
has done nothing that a person had to decide about.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CapabilityError,
    SubagentAnswerError,
    SubagentError,
    SubagentStartError,
    SubagentStateError,
    SubagentTimeoutError,
)
from noesium_stream.kernel.retry import Retries
from noesium_stream.subagent.lifecycle import Request, State, SubagentAdapter
from noesium_stream.subagent.restarts import Restarts
from noesium_stream.subagent.turns import Ticket, Turns

FIRST: Final = "the first call of its session"
IDLE: Final = "it was idle for too long"
NEEDED: Final = "another session needed its place"
STOPPED: Final = "the worker ends"
_REMEMBERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a sub-agent in one worker process; times are in seconds.

    Attributes:
        places: most processes.
        waiting: most calls that wait for their turn.
        timeout_s: longest time for one answer.
        idle_s: time after which an idle process ends.
    """

    places: int
    waiting: int
    timeout_s: float
    idle_s: float


class Ready(NamedTuple):
    """What `Visit.ready` found: a process that can be asked, or that a person has to be asked.

    `started`: a process was started for this call, and why.
    """

    ready: bool
    started: bool = False
    reason: str = ""
    failures: int = 0


@dataclass(slots=True)
class _Session:
    """The process of a session and its failures.

    `why` is why it needs a new process; `idle` ends the process when nobody calls.
    """

    adapter: SubagentAdapter
    restarts: Restarts
    why: str = FIRST
    idle: asyncio.Task[None] | None = None

    def keep(self) -> None:
        """Let the process live on."""
        idle, self.idle = self.idle, None
        if idle is not None:
            idle.cancel()


@dataclass(slots=True)
class Sessions:
    """All sessions of a sub-agent in this process.

    Args:
        who: its name in messages.
        make: makes the adapter of a session.
        limits: see `Limits`.
        restarts: how often, and after which pauses, a process that fails is started again.
        clock: of the pauses, and of the time that a process is idle.
    """

    who: str
    make: Callable[[], SubagentAdapter]
    limits: Limits
    restarts: Retries
    clock: Clock
    _turns: Turns = field(init=False)
    _sessions: OrderedDict[str, _Session] = field(init=False, default_factory=OrderedDict)
    _granted: dict[Ticket, asyncio.Future[asyncio.Task[None] | None]] = field(
        init=False, default_factory=dict
    )
    _ending: set[asyncio.Task[None]] = field(init=False, default_factory=set)
    _stopped: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._turns = Turns(self.limits.places, self.limits.waiting)

    @asynccontextmanager
    async def visit(self, name: str) -> AsyncIterator[Visit]:
        """A call of a session; its turn, if it has one, ends with it."""
        visit = Visit(self, name)
        try:
            yield visit
        finally:
            visit.leave()

    async def stop(self) -> None:
        """End all processes; no call begins any more."""
        self._stopped = True
        for future in self._granted.values():
            future.cancel()
        for session in self._sessions.values():
            session.keep()
            self._end(session, STOPPED)
        await asyncio.gather(*self._ending)

    def _check_open(self) -> None:
        if self._stopped:
            raise SubagentStateError(f"{self.who} takes no calls any more: {STOPPED}.")

    # -- turns -----------------------------------------------------------------------------------------

    async def turn(self, name: str) -> Ticket:
        """Wait for the session's turn; return its ticket.

        Raises:
            SubagentBusyError: too many calls wait already.
            SubagentStateError: the worker ends.
        """
        self._check_open()
        ticket = self._turns.join(name, self.who)
        granted = self._granted[ticket] = asyncio.get_running_loop().create_future()
        self._let_go()
        try:
            ending = await granted
            if ending is not None:
                await asyncio.shield(ending)
        except BaseException:
            self.leave(ticket)
            raise
        finally:
            del self._granted[ticket]
        self.session(name).keep()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """End a turn, or the waiting for it."""
        self._turns.leave(ticket)
        name = ticket.session
        session = self._sessions.get(name)
        if session is not None and not self._turns.is_working(name):
            self._rest(name, session)
        self._let_go()

    def _let_go(self) -> None:
        for turn in self._turns.due():
            # At once: a later call of that session must not meet the process that has to end.
            ending = None if turn.ends is None else self._end(self._sessions[turn.ends], NEEDED)
            granted = self._granted[turn.ticket]
            if not granted.done():  # else its call is cancelled, and about to leave
                granted.set_result(ending)

    def _rest(self, name: str, session: _Session) -> None:
        """Let an idle process end after a time; a session without one gives its place back."""
        if session.adapter.life.can_be_asked:
            if session.idle is None and not self._stopped:
                session.idle = asyncio.create_task(self._end_later(name))
            return
        self._turns.vacate(name)
        if not session.restarts.failures:
            del self._sessions[name]

    async def _end_later(self, name: str) -> None:
        await self.clock.sleep(self.limits.idle_s)
        session = self._sessions.get(name)
        if session is not None and not self._turns.is_working(name):
            session.idle = None
            ending = self._end(session, IDLE)
            self._turns.vacate(name)
            await asyncio.shield(ending)
            self._let_go()

    def _end(self, session: _Session, reason: str) -> asyncio.Task[None]:
        """Begin to end the process of a session, which gets another one with its next call."""
        session.keep()
        adapter, session.adapter, session.why = session.adapter, self.make(), reason
        ending = asyncio.create_task(adapter.terminate(reason, force=True))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        return ending

    # -- processes -------------------------------------------------------------------------------------

    def session(self, name: str) -> _Session:
        """A session, which may be new; the failures of very many others are forgotten."""
        found = self._sessions.get(name)
        if found is None:
            found = self._sessions[name] = _Session(self.make(), Restarts(self.restarts))
            for other in list(self._sessions)[: max(0, len(self._sessions) - _REMEMBERED)]:
                if self._sessions[other].adapter.life.state is State.TERMINATED:
                    del self._sessions[other]
        return found

    async def ready(self, name: str) -> Ready:
        """Return when the process of a session, whose turn it is, can be asked, or a person has to be.

        Raises:
            SubagentStartError: a person was asked and has not answered.
        """
        session = self.session(name)
        adapter, restarts = session.adapter, session.restarts
        if await adapter.health_check():
            return Ready(True)
        session.why = adapter.life.reason or session.why
        while True:
            verdict = restarts.verdict(self.clock.monotonic())
            if verdict.ask:
                return Ready(False, reason=restarts.reason, failures=restarts.failures)
            if verdict.wait_s is None:
                raise self._refusal(restarts)
            if verdict.wait_s:
                await self.clock.sleep(verdict.wait_s)
            self._check_open()
            try:
                if adapter.life.state is State.CREATED:
                    await adapter.spawn()
                else:
                    await adapter.restart(session.why)
            except SubagentStartError as error:
                self.failed(session, error)
                if restarts.asked:
                    raise self._refusal(restarts) from error
            else:
                return Ready(True, started=True, reason=session.why)

    def _refusal(self, restarts: Restarts) -> SubagentStartError:
        return SubagentStartError(
            f"{self.who} has failed {restarts.failures} times in a row, and a person was asked: "
            f"{restarts.reason}",
            hint="Answer the question: noesium approvals",
        )

    async def exchange(self, name: str, request: Request) -> Any:
        """Send a request to a process that can be asked; return the value of its answer.

        Raises:
            CapabilityError: the request cannot be written down.
            SubagentError: anything else than an answer came of it; the process was killed, unless it answered
                with an error.
        """
        session = self.session(name)
        adapter = session.adapter
        try:
            async with asyncio.timeout(self.limits.timeout_s):
                await adapter.send(request)
                answer = await adapter.receive()
        except CapabilityError:
            raise
        except TimeoutError:
            error = SubagentTimeoutError(
                f"{self.who} did not answer in {self.limits.timeout_s:g} s, and was killed."
            )
            self.failed(session, error)
            await adapter.terminate(error.message, force=True)
            raise error from None
        except SubagentError as error:
            if self._stopped:  # it was killed in the middle: its outcome is not known
                raise asyncio.CancelledError(STOPPED) from error
            self.failed(session, error)
            await adapter.terminate(error.message, force=True)
            raise
        except BaseException:
            await adapter.terminate("nobody waits for its answer any more", force=True)
            raise
        session.restarts.worked()
        if answer.error is not None:
            raise SubagentAnswerError(f"{self.who}: {answer.error}")
        return answer.value

    def failed(self, session: _Session, error: SubagentError) -> None:
        """Count a failure of a session's process."""
        session.restarts.failed(error, self.clock.monotonic(), self.clock.random())

    def answered(self, name: str, approved: bool) -> None:
        """Note a person's answer about a session; without effect if this process has not asked."""
        session = self._sessions.get(name)
        if session is not None and session.restarts.asked:
            session.restarts.answered(approved, self.clock.monotonic())


class Visit:
    """One call of a session; see the module's docstring."""

    def __init__(self, sessions: Sessions, name: str) -> None:
        self._sessions = sessions
        self._name = name
        self._ticket: Ticket | None = None

    async def ready(self) -> Ready:
        """Wait for the turn and for a process; the turn is kept only if there is one.

        Raises:
            SubagentBusyError, SubagentStartError, SubagentStateError: there is none.
        """
        if self._ticket is None:
            self._ticket = await self._sessions.turn(self._name)
        found = Ready(False)
        try:
            found = await self._sessions.ready(self._name)
        finally:
            if not found.ready:
                self.leave()
        return found

    async def ask(self, request: Request) -> Any:
        """Send a request and return the value of the answer; the turn ends with it.

        Raises:
            CapabilityError: the request cannot be written down.
            SubagentError: it has failed.
        """
        ticket, self._ticket = self._ticket, None  # the call may outlast the visit
        if ticket is None:
            ticket = await self._sessions.turn(self._name)
        try:
            found = await self._sessions.ready(self._name)
            if not found.ready:
                self._sessions.answered(self._name, False)
                raise SubagentStartError(
                    f"{self._sessions.who} has failed {found.failures} times in a row: {found.reason}"
                )
            return await self._sessions.exchange(self._name, request)
        finally:
            self._sessions.leave(ticket)

    def answered(self, approved: bool) -> None:
        """Note a person's answer to the question that `ready` called for."""
        self._sessions.answered(self._name, approved)

    def leave(self) -> None:
        """Give the turn back, if it has one."""
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._sessions.leave(ticket)
