"""A2A tasks on the log: since a cursor, and all of a requester."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from a2a.types import Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

from noesium_stream.a2a.tasks import INTERRUPTED, Change, TaskFold
from noesium_stream.client import Client, Run
from noesium_stream.client.shared.tail import closing
from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.clock import Clock
from noesium_stream.errors import EventValidationError, RunNotFoundError
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.log.generations import open_generations
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.log.topics import TopicKind
from noesium_stream.serving.run_fold import TYPES, Cursor
from noesium_stream.serving.runs import Runs, is_of, taken, task_id_of

Seen = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class Tasks(Runs[TaskFold, Change]):
    """The tasks of requesters on one log; see `Runs`."""

    def __init__(
        self, log: EventLog, only: tuple[str, ...], client: Callable[[str], Client], clock: Clock
    ) -> None:
        super().__init__(log, only, client, clock, TaskFold)

    async def since(
        self, task_id: str, requester: str, after: Cursor
    ) -> tuple[Run, TaskFold, Task, list[Change]]:
        """Read a task as it is now, as it was at a cursor, and the changes behind that.

        Raises:
            RunNotFoundError: the requester has no such task.
            EventValidationError: no event of the task has this cursor.
        """
        run, fold, _ = await self.handle(task_id, requester)
        task: Task | None = None
        missed: list[Change] = []
        async with aclosing(self.now(run, fold)) as changes:
            async for change in changes:
                if task is not None and change is not None:
                    missed.append(change)
                elif task is None and fold.cursor == after:
                    task = fold.task()
        if not is_of(fold, requester):
            raise RunNotFoundError("There is no such task.")
        if task is None:
            raise EventValidationError("Last-Event-ID", "is no cursor of this task's stream")
        return run, fold, task, missed

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
                is_first = fold.take_command(record.unchecked)
            except WRONG as error:
                if record.topic.split(".")[3] != TopicKind.INBOX.value:
                    pass_over(record, error)
                return
            if not is_first or not is_of(fold, requester):
                return
            tasks[run_id] = fold
        if run_id in tasks and record.topic.split(".")[3] != TopicKind.INBOX.value:
            fold = tasks[run_id]
            for _ in taken(fold, record):
                fold.result = None

    async def _records(self, agent_type: str) -> AsyncGenerator[Record, None]:
        for generation in await open_generations(self._log, agent_type):
            for topic, types in ((generation.inbox, COMMANDS), (generation.journal, TYPES)):
                until = await self._log.end(topic)
                async with closing(self._log.read(topic, {}, until=until, types=types)) as records:
                    async for record in records:
                        yield record


def pauses(fold: TaskFold) -> bool:
    """Whether a stream ends here: the task has ended, or waits for its requester."""
    return fold.ended or fold.state in INTERRUPTED
