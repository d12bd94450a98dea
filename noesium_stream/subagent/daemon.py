"""A program as a sub-agent: its process, driven through the adapter (RFC-0005)."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from typing import Final

from noesium_stream.errors import (
    SubagentExitedError,
    SubagentProtocolError,
    SubagentStartError,
    SubagentStateError,
    brief,
)
from noesium_stream.programs.launch import GuardLine, launch
from noesium_stream.programs.program import Program
from noesium_stream.subagent.lifecycle import Answer, Life, Request, State
from noesium_stream.subagent.pipes import Lines, Pipes
from noesium_stream.subagent.protocol import Dialogue, Protocol, excerpt

GRACE_S: Final = 0.5
"""Time between SIGTERM and SIGKILL, in seconds; an ending worker waits for it."""
_PATIENCE_S: Final = 1.0
_SAID: Final = 300


class _Process:
    """One process: its pipes, its guard, the dialogue with it, and the answer that is waited for.

    Attributes:
        guard: the line to its guard; None: it was told to end.
        wrong: what it has done that it should not; None: nothing.
    """

    def __init__(self, dialogue: Dialogue, max_answer: int) -> None:
        self.guard: GuardLine | None = None
        self.wrong: str | None = None
        self._dialogue = dialogue
        self._lines = Lines(max_answer)
        self.pipes = Pipes(self._lines, self._hear, self._fault)
        self._outcome: asyncio.Future[Answer | SubagentProtocolError | None] | None = None

    def ask(self, request: Request) -> bytes:
        """What is written for a request, whose answer `outcome` waits for."""
        written = self._dialogue.ask(request)
        self._outcome = asyncio.get_running_loop().create_future()
        return written

    async def outcome(self) -> Answer | SubagentProtocolError | None:
        """The answer, or what it printed instead; None: there is none, it has closed its output."""
        return None if self._outcome is None else await self._outcome

    async def ended(self) -> None:
        """Return when it has ended, and all that it wrote was read; or after some seconds."""
        await _within(self.pipes.ended, _PATIENCE_S)

    async def end(self, grace_s: float) -> None:
        """End it: SIGTERM, and after `grace_s` seconds SIGKILL, to all that it has started."""
        guard, self.guard = self.guard, None
        if guard is not None:
            try:
                guard.ask_to_end()
                self.pipes.close_stdin()
                await _within(self.pipes.exited, grace_s)
            finally:
                guard.kill()
        await _within(self.pipes.exited, _PATIENCE_S)
        self.pipes.close()
        if guard is not None:
            await guard.clear()

    def how(self) -> str:
        """How its output has ended."""
        status = self.pipes.status
        return "closed its output" if status is None else f"ended with status {status}"

    def said(self) -> str:
        """The end of what it wrote to standard error, for people."""
        text = self.pipes.errors.decode(errors="backslashreplace").strip()
        return f" On standard error: {excerpt(text[-_SAID:], _SAID)}" if text else ""

    def _hear(self, line: bytes) -> None:
        answer = self._dialogue.hear(line)
        if answer is not None:
            self._lines.pause()
            self._settle(answer)

    def _fault(self, error: SubagentProtocolError | None) -> None:
        self.wrong = "closed its output" if error is None else error.message
        self._settle(error)

    def _settle(self, outcome: Answer | SubagentProtocolError | None) -> None:
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(outcome)


async def _within(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, or for some seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class CliDaemon:
    """A sub-agent that is a program of the command line; see `SubagentAdapter`.

    Args:
        program: what is started.
        protocol: what it speaks.
        who: its name in messages.
        grace_s: how long it may take to end on SIGTERM, in seconds.
    """

    def __init__(self, program: Program, protocol: Protocol, who: str, *, grace_s: float = GRACE_S) -> None:
        self._program = program
        self._protocol = protocol
        self._who = who
        self._grace_s = grace_s
        self._life = Life(who)
        self._process: _Process | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def life(self) -> Life:
        """See `SubagentAdapter.life`."""
        return self._life

    async def spawn(self) -> None:
        """See `SubagentAdapter.spawn`."""
        if self._life.state is State.TERMINATED:
            self._life = Life(self._who)
        if self._ending is not None:
            await asyncio.shield(self._ending)
        try:
            self._process = await self._start()
        except SubagentStartError as error:
            self._life.move(State.TERMINATED, error.message)
            raise
        self._life.move(State.RUNNING)

    async def _start(self) -> _Process:
        program = self._program
        path = program.path(os.environ)
        if path is None:
            raise SubagentStartError(program.not_here(self._who), hint="Install it, or give its path.")
        process = _Process(self._protocol.dialogue(), program.max_answer)
        spawn = partial(asyncio.get_running_loop().subprocess_exec, lambda: process.pipes)
        try:
            _, process.guard = await launch(program, path, spawn, prefix="noesium-subagent-")
        except OSError as error:
            raise SubagentStartError(f"{self._who} cannot be started: {brief(error)}") from error
        return process

    async def send(self, request: Request) -> None:
        """See `SubagentAdapter.send`."""
        process = self._process
        if process is None or not await self.health_check():
            raise SubagentExitedError(f"{self._who} has ended before it was asked: {self._life.reason}.")
        written = process.ask(request)
        self._life.move(State.BUSY)
        process.pipes.write(written)

    async def receive(self) -> Answer:
        """See `SubagentAdapter.receive`."""
        process = self._process
        if process is None or self._life.state is not State.BUSY:
            raise SubagentStateError(f"{self._who} is {self._life.state}: it was not asked.")
        outcome = await process.outcome()
        if isinstance(outcome, SubagentProtocolError):
            raise SubagentProtocolError(f"{self._who} {outcome.message}{process.said()}")
        if outcome is None:
            await process.ended()
            raise SubagentExitedError(f"{self._who} {process.how()} before it answered.{process.said()}")
        self._life.move(State.IDLE)
        return outcome

    async def health_check(self) -> bool:
        """See `SubagentAdapter.health_check`."""
        process = self._process
        if self._life.can_be_asked and process is not None:
            if process.pipes.status is not None:
                await self.terminate(process.how())
            elif process.wrong is not None:
                await self.terminate(process.wrong)
        return self._life.can_be_asked

    async def restart(self, reason: str = "") -> None:
        """See `SubagentAdapter.restart`."""
        await self.terminate(reason, force=True)
        await self.spawn()

    async def terminate(self, reason: str = "", *, force: bool = False) -> None:
        """See `SubagentAdapter.terminate`; a cancelled caller does not keep it alive."""
        if self._life.state is not State.TERMINATED:
            self._life.move(State.TERMINATED, reason, force=force)
            process, self._process = self._process, None
            if process is not None:
                self._ending = asyncio.create_task(process.end(self._grace_s))
        if self._ending is not None:
            await asyncio.shield(self._ending)
