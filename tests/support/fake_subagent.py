"""A sub-agent without a process: it answers when a test lets it."""

from __future__ import annotations

import asyncio

from noesium_stream.errors import SubagentError, SubagentStartError
from noesium_stream.subagent.lifecycle import Answer, Life, Request, State


class FakeWorld:
    """All fake sub-agents of a test: what was done, and what happens next."""

    def __init__(self) -> None:
        self.made: list[FakeSubagent] = []
        self.done: list[str] = []
        self.refuse_starts = 0
        self.starts = 0
        self.most = 0

    def make(self) -> FakeSubagent:
        self.made.append(FakeSubagent(self))
        return self.made[-1]

    @property
    def running(self) -> list[FakeSubagent]:
        return [one for one in self.made if one.life.state not in (State.CREATED, State.TERMINATED)]

    def busy(self) -> list[str]:
        return [one.asked[-1] for one in self.running if one.life.state is State.BUSY]

    def answer(self, request_id: str, what: Answer | SubagentError | None = None) -> None:
        (one,) = [one for one in self.running if one.life.state is State.BUSY and one.asked[-1] == request_id]
        one.outcome.set_result(Answer(request_id) if what is None else what)


class FakeSubagent:
    """See `SubagentAdapter`."""

    def __init__(self, world: FakeWorld) -> None:
        self._world = world
        self.life = Life("fake")
        self.asked: list[str] = []
        self.outcome: asyncio.Future[Answer | SubagentError] = asyncio.Future()
        self.sick = ""

    async def spawn(self) -> None:
        world = self._world
        if self.life.state is State.TERMINATED:
            self.life = Life("fake")
        world.starts += 1
        if world.refuse_starts:
            world.refuse_starts -= 1
            error = SubagentStartError("fake cannot be started.")
            self.life.move(State.TERMINATED, error.message)
            raise error
        self.life.move(State.RUNNING)
        world.most = max(world.most, len(world.running))

    async def send(self, request: Request) -> None:
        self.life.move(State.BUSY)
        self.asked.append(request.request_id)
        self.outcome = asyncio.Future()

    async def receive(self) -> Answer:
        outcome = await self.outcome
        if isinstance(outcome, SubagentError):
            raise outcome
        self.life.move(State.IDLE)
        return outcome

    async def health_check(self) -> bool:
        if self.sick and self.life.can_be_asked:
            self.life.move(State.TERMINATED, self.sick)
        return self.life.can_be_asked

    async def restart(self, reason: str = "") -> None:
        await self.terminate(reason, force=True)
        await self.spawn()

    async def terminate(self, reason: str = "", *, force: bool = False) -> None:
        if self.life.state is not State.TERMINATED:
            self.life.move(State.TERMINATED, reason, force=force)
            self._world.done.append(reason)
            if not self.outcome.done():
                self.outcome.set_result(SubagentError("it was ended"))
