"""Runs that servers have started for others: found by id, read and followed, for one requester each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any, Final, Generic, TypeVar

from noesium_stream.client import Client, Run
from noesium_stream.client.client import CLIENT_TYPE
from noesium_stream.client.shared.tail import closing
from noesium_stream.client.views.refused_records import refused_records
from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.clock import Clock
from noesium_stream.errors import RunNotFoundError
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.event.standard.forms import AGENT_TYPE
from noesium_stream.log.port import EventLog, Position
from noesium_stream.log.record import Record
from noesium_stream.serving.places import Places
from noesium_stream.serving.run_fold import TYPES, ChangeT, RunFold

FoldT = TypeVar("FoldT", bound=RunFold[Any])

_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TYPE: Final = re.compile(AGENT_TYPE)
LOOK_S: Final = 10.0
"""How often a task that no worker has taken yet is looked at: its command may have been refused."""


def task_id_of(agent_type: str, run_id: str) -> str:
    """Return the id of a run's task: `TYPE.RUN`."""
    return f"{agent_type}.{run_id}"


def parse_task_id(task_id: str) -> tuple[str, str]:
    """Return agent type and run id of a task.

    Raises:
        RunNotFoundError: no task has such an id.
    """
    agent_type, _, run_id = task_id[:200].rpartition(".")
    if not _TYPE.fullmatch(agent_type) or not _RUN_ID.fullmatch(run_id):
        raise RunNotFoundError("There is no such task.")
    return agent_type, run_id


class Runs(Generic[FoldT, ChangeT]):
    """The runs of requesters on one log.

    Args:
        log: the log.
        only: the agent types that are open to others; empty: all.
        client: gives the client of a requester, by name.
        clock: source of time.
        fold: makes the fold of a run, by task id, run id and agent type.
    """

    def __init__(
        self,
        log: EventLog,
        only: tuple[str, ...],
        client: Callable[[str], Client],
        clock: Clock,
        fold: Callable[[str, str, str], FoldT],
    ) -> None:
        self._log = log
        self._places = Places(log)
        self._clock = clock
        self._only = only
        self._client = client
        self._fold = fold

    async def find(self, task_id: str, requester: str) -> tuple[Run, FoldT]:
        """Read a task as the log has it now.

        Raises:
            RunNotFoundError: the requester has no such task.
        """
        run, fold, command = await self.handle(task_id, requester)
        async with aclosing(self.now(run, fold)) as changes:
            async for _ in changes:
                pass
        if fold.command is None and command is not None:
            await self._take_command(run, fold, command)
        if not is_of(fold, requester):
            raise RunNotFoundError("There is no such task.")
        return run, fold

    async def handle(self, task_id: str, requester: str) -> tuple[Run, FoldT, Position | None]:
        """Return a run, its empty fold, and the place of its command if no journal has it yet.

        Raises:
            RunNotFoundError: there is no such task.
        """
        agent_type, run_id = parse_task_id(task_id)
        is_open = not self._only or agent_type in self._only
        if not is_open or self._log.topology.inbox(agent_type) not in await self._log.layout():
            raise RunNotFoundError("There is no such task.")
        place = await self._places.find(agent_type, run_id)
        run = self._client(requester).run_handle(agent_type, run_id, since=place.since)
        return run, self._fold(task_id_of(agent_type, run_id), run_id, agent_type), place.command

    async def started(self, agent_types: Iterable[str], key: str, requester: str) -> tuple[Run, FoldT] | None:
        """Find the run that a command with this idempotency key has started, at any of these agents."""
        for agent_type in agent_types:
            run_id = self._client(requester).run_id_of(agent_type, key)
            try:
                return await self.find(task_id_of(agent_type, run_id), requester)
            except RunNotFoundError:
                continue
        return None

    async def follow(self, run: Run, fold: FoldT) -> AsyncGenerator[ChangeT, None]:
        """Yield the changes behind what the fold has, up to the end of the run."""
        if fold.ended:
            return
        async with aclosing(self._coming(run, fold)) as records:
            async for record in records:
                for change in taken(fold, record):
                    if change is not None:
                        yield change
                if fold.ended:
                    return

    async def _coming(self, run: Run, fold: FoldT) -> AsyncGenerator[Record, None]:
        """Yield the records behind those of the fold; end if the run's command is refused."""
        async with aclosing(run.records(types=TYPES)) as records:
            coming: asyncio.Future[Record | None] | None = None
            try:
                while True:
                    coming = coming or asyncio.ensure_future(anext(records, None))
                    await asyncio.wait([coming], timeout=LOOK_S if fold.offset < 0 else None)
                    if not coming.done():
                        if await self._is_refused(run, fold):
                            return
                        continue
                    record, coming = coming.result(), None
                    if record is None:
                        return
                    if record.offset > fold.offset:
                        yield record
            finally:
                if coming is not None:
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)

    async def now(self, run: Run, fold: FoldT) -> AsyncGenerator[ChangeT | None, None]:
        """Fold what the log has of a run; yield each change, and None after other records."""
        async with aclosing(run.records(follow=False, types=TYPES)) as records:
            async for record in records:
                for change in taken(fold, record):
                    yield change

    async def _take_command(self, run: Run, fold: FoldT, place: Position) -> None:
        """Take the command of a run that has no journal yet; one that has waited may have been refused."""
        start, until = {place.partition: place.offset}, {place.partition: place.offset + 1}
        async with closing(self._log.read(place.topic, start, until=until, types=COMMANDS)) as records:
            async for record in records:
                if record.key == run.id and record.offset == place.offset:
                    fold.take_command(record.unchecked)
        if self._clock.now_ms() - fold.changed_ms > LOOK_S * 1000:
            await self._is_refused(run, fold)

    async def _is_refused(self, run: Run, fold: FoldT) -> bool:
        """Whether the run's command is a dead letter; then the fold is told."""
        place = await self._places.find(run.agent_type, run.id)
        if place.command is None:
            return False
        reason = (await refused_records(self._log, run.agent_type, run.id)).get(place.command)
        if reason is not None:
            fold.refuse(reason)
        return reason is not None


def is_of(fold: RunFold[Any], requester: str) -> bool:
    """Whether this requester has begun the run, through such a server."""
    command = fold.command
    if command is None or not isinstance(command.metadata.get(fold.channel), dict):
        return False
    return command.producer.agent_type == CLIENT_TYPE and command.producer.agent_id == requester


def taken(fold: RunFold[ChangeT], record: Record) -> Iterator[ChangeT | None]:
    """Fold a record; yield its changes, or None if it makes none."""
    if record.offset <= fold.offset:
        return
    made = False
    try:
        for change in fold.take(record.unchecked, record.offset):
            made = True
            yield change
    except WRONG as error:
        pass_over(record, error)
        fold.offset = record.offset
    if not made:
        yield None
