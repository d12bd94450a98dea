"""Pages of tasks: filters, order and page tokens of `ListTasks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from a2a.types import ListTasksRequest, TaskState
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import ListTasksCursor, decode_list_tasks_cursor, encode_list_tasks_cursor

from noesium_stream.a2a.tasks import TaskFold

_NS: Final = 1_000_000
"""Nanoseconds in a millisecond."""


class Page(NamedTuple):
    """One page: its tasks, the token of the next one (empty: it is the last), and how many there are."""

    tasks: Sequence[TaskFold]
    next_token: str
    total: int


def page_of(tasks: Iterable[TaskFold], params: ListTasksRequest, size: int) -> Page:
    """Return the page that is asked for, of these tasks; the last changed come first.

    Raises:
        InvalidParamsError: the page token is none.
    """
    found = sorted((task for task in tasks if _fits(task, params)), key=_order, reverse=True)
    total = len(found)
    if params.page_token:
        cursor = decode_list_tasks_cursor(params.page_token[:1_000])
        if cursor is None:
            raise InvalidParamsError("page_token is none that this server has given.")
        behind = cursor.timestamp_ns or 0, cursor.task_id
        found = [task for task in found if _order(task) < behind]
    page = found[:size]
    if len(found) == len(page):
        return Page(page, "", total)
    last = ListTasksCursor(page[-1].changed_ms * _NS, page[-1].task_id)
    return Page(page, encode_list_tasks_cursor(last), total)


def _order(task: TaskFold) -> tuple[int, str]:
    return task.changed_ms * _NS, task.task_id


def _fits(task: TaskFold, params: ListTasksRequest) -> bool:
    if params.context_id and task.context_id != params.context_id:
        return False
    if params.status not in (TaskState.TASK_STATE_UNSPECIFIED, task.state):
        return False
    if not params.HasField("status_timestamp_after"):
        return True
    after_ms: int = params.status_timestamp_after.ToMilliseconds()
    return task.changed_ms > after_ms
