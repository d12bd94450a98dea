"""Tasks on the log: found by id, read, followed and listed, for one requester each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Final

from a2a.types import Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from a2a.utils.errors import TaskNotFoundError

from noesium_stream.a2a.places import Places
from noesium_stream.a2a.tasks import INTERRUPTED, METADATA, TYPES, Change, Cursor, TaskFold
from noesium_stream.client import Client, Run
from noesium_stream.client.client import CLIENT_TYPE
from noesium_stream.client.views.refused_records import refused_records
from noesium_stream.client.views.run_reader import closing
from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.clock import Clock
from noesium_stream.errors import EventValidationError
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.event.standard.forms import AGENT_TYPE
from noesium_stream.log.generations import open_generations
from noesium_stream.log.port import EventLog, Position
from noesium_stream.log.record import Record
from noesium_stream.log.topics import TopicKind

Seen = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

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
        TaskNotFoundError: no task has such an id.
    """
    agent_type, _, run_id = task_id[:200].rpartition(".")
    if not _TYPE.fullmatch(agent_type) or not _RUN_ID.fullmatch(run_id):
        raise TaskNotFoundError("There is no such task.")
    return agent_type, run_id


class Tasks:
    """The tasks of requesters on one log.

    Args:
        log: the log.
        only: the agent types that are open to others; empty: all.
        client: gives the client of a requester, by name.
        clock: source of time.
    """

    def __init__(
        self, log: EventLog, only: tuple[str, ...], client: Callable[[str], Client], clock: Clock
    ) -> None:
        self._log = log
        self._places = Places(log)
        self._clock = clock
        self._only = only
        self._client = client

    async def find(self, task_id: str, requester: str) -> tuple[Run, TaskFold]:
        """Read a task as the log has it now.

        Raises:
            TaskNotFoundError: the requester has no such task.
        """
        run, fold, command = await self._handle(task_id, requester)
        async with aclosing(self._now(run, fold)) as changes:
            async for _ in changes:
                pass
        if fold.command is None and command is not None:
            await self._take_command(run, fold, command)
        if not is_of(fold, requester):
            raise TaskNotFoundError("There is no such task.")
        return run, fold

    async def _handle(self, task_id: str, requester: str) -> tuple[Run, TaskFold, Position | None]:
        agent_type, run_id = parse_task_id(task_id)
        is_open = not self._only or agent_type in self._only
        if not is_open or self._log.topology.inbox(agent_type) not in await self._log.layout():
            raise TaskNotFoundError("There is no such task.")
        place = await self._places.find(agent_type, run_id)
        run = self._client(requester).run_handle(agent_type, run_id, since=place.since)
        return run, TaskFold(task_id_of(agent_type, run_id), run_id, agent_type), place.command

    async def since(
        self, task_id: str, requester: str, after: Cursor
    ) -> tuple[Run, TaskFold, Task, list[Change]]:
        """Read a task as it is now, as it was at a cursor, and the changes behind that.

        Raises:
            TaskNotFoundError: the requester has no such task.
            EventValidationError: no event of the task has this cursor.
        """
        run, fold, _ = await self._handle(task_id, requester)
        task: Task | None = None
        missed: list[Change] = []
        async with aclosing(self._now(run, fold)) as changes:
            async for change in changes:
                if task is not None and change is not None:
                    missed.append(change)
                elif task is None and fold.cursor == after:
                    task = fold.task()
        if not is_of(fold, requester):
            raise TaskNotFoundError("There is no such task.")
        if task is None:
            raise EventValidationError("Last-Event-ID", "is no cursor of this task's stream")
        return run, fold, task, missed

    async def follow(self, run: Run, fold: TaskFold) -> AsyncGenerator[Change, None]:
        """Yield the changes behind what the fold has, up to the end of the run."""
        if fold.ended:
            return
        async with aclosing(self._coming(run, fold)) as records:
            async for record in records:
                for change in _taken(fold, record):
                    if change is not None:
                        yield change
                if fold.ended:
                    return

    async def _coming(self, run: Run, fold: TaskFold) -> AsyncGenerator[Record, None]:
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

    async def _now(self, run: Run, fold: TaskFold) -> AsyncGenerator[Change | None, None]:
        """Fold what the log has of a run; yield each change, and None after other records."""
        async with aclosing(run.records(follow=False, types=TYPES)) as records:
            async for record in records:
                for change in _taken(fold, record):
                    yield change

    async def _take_command(self, run: Run, fold: TaskFold, place: Position) -> None:
        """Take the command of a run that has no journal yet; one that has waited may have been refused."""
        start, until = {place.partition: place.offset}, {place.partition: place.offset + 1}
        async with closing(self._log.read(place.topic, start, until=until, types=COMMANDS)) as records:
            async for record in records:
                if record.key == run.id and record.offset == place.offset:
                    fold.take_command(record.unchecked)
        if self._clock.now_ms() - fold.changed_ms > LOOK_S * 1000:
            await self._is_refused(run, fold)

    async def _is_refused(self, run: Run, fold: TaskFold) -> bool:
        """Whether the run's command is a dead letter; then the fold is told."""
        place = await self._places.find(run.agent_type, run.id)
        if place.command is None:
            return False
        reason = (await refused_records(self._log, run.agent_type, run.id)).get(place.command)
        if reason is not None:
            fold.refuse(reason)
        return reason is not None

    async def all(self, requester: str) -> list[TaskFold]:
        """Read all tasks of a requester, in no order, without their results.

        Raises:
            LogUnavailableError
        """
        found: list[TaskFold] = []
        for agent_type in self._only or await self._client(requester).agent_types():
            tasks: dict[str, TaskFold] = {}
            async with aclosing(self._records(agent_type)) as records:
                async for record in records:
                    self._list(tasks, record, agent_type, requester)
            found += tasks.values()
        return found

    def _list(self, tasks: dict[str, TaskFold], record: Record, agent_type: str, requester: str) -> None:
        run_id = record.key
        if record.event_type in COMMANDS and run_id not in tasks:
            fold = TaskFold(task_id_of(agent_type, run_id), run_id, agent_type)
            try:
                taken = fold.take_command(record.unchecked)
            except WRONG as error:
                if record.topic.split(".")[3] != TopicKind.INBOX.value:
                    pass_over(record, error)
                return
            if not taken or not is_of(fold, requester):
                return
            tasks[run_id] = fold
        if run_id in tasks and record.topic.split(".")[3] != TopicKind.INBOX.value:
            fold = tasks[run_id]
            for _ in _taken(fold, record):
                fold.result = None

    async def _records(self, agent_type: str) -> AsyncGenerator[Record, None]:
        for generation in await open_generations(self._log, agent_type):
            for topic, types in ((generation.inbox, COMMANDS), (generation.journal, TYPES)):
                until = await self._log.end(topic)
                async with closing(self._log.read(topic, {}, until=until, types=types)) as records:
                    async for record in records:
                        yield record


def is_of(fold: TaskFold, requester: str) -> bool:
    """Whether this requester has begun the task, over A2A."""
    command = fold.command
    if command is None or not isinstance(command.metadata.get(METADATA), dict):
        return False
    return command.producer.agent_type == CLIENT_TYPE and command.producer.agent_id == requester


def pauses(fold: TaskFold) -> bool:
    """Whether a stream ends here: the task has ended, or waits for its requester."""
    return fold.ended or fold.state in INTERRUPTED


def _taken(fold: TaskFold, record: Record) -> Iterator[Change | None]:
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
