"""Calls of other agents from a node, by events alone (RFC-0005, RFC-1001 §10.3 and §12.1).

A capability and a tool are called in the same way; the kind of a call decides which pair of events carries
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, get_args

from noesium_stream.clock import derived_id, to_ms
from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import CapabilityError, ConfigError, DeadlineExceededError, StateError
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.rules.agent_calls import capability_call, tool_call, tool_capability_id
from noesium_stream.event.standard import Grant, ToolLimits
from noesium_stream.event.trust.grants import grant_in, limited_grant, limits_of, narrowed
from noesium_stream.event.trust.speaking import principal_of
from noesium_stream.kernel.state.typed_json import check_size, said_of
from noesium_stream.kernel.step.invocation import Call, Invocation, OnUnresolved, has_failed
from noesium_stream.kernel.step.position import Place
from noesium_stream.kernel.step.task import TaskInvocation
from noesium_stream.log.topics import task_capability

FAILURES: Final = (CapabilityError, DeadlineExceededError)
"""Errors of a call itself; others end the step's execution."""


class Delegation:
    """A step's calls of other agents."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def invoke(
        self,
        capability_id: str,
        arguments: Mapping[str, Any],
        *,
        version: str | None = None,
        deadline: Duration | datetime | None = None,
        on_unresolved: OnUnresolved = "wait",
        allow_cycle: bool = False,
        roles: Collection[str] | None = None,
        scopes: Collection[str] | None = None,
        permissions: Collection[str] | None = None,
        mode: str | None = None,
    ) -> Any:
        """See `Step.invoke`."""
        call = Call("invoke", capability_id, version, capability_call, allow_cycle=allow_cycle)
        grant = self._grant(roles, scopes, limits_of(permissions, mode))
        return await self._ask(call, arguments, deadline, on_unresolved, grant)

    async def invoke_many(
        self,
        calls: Iterable[Callable[[], Coroutine[Any, Any, Any]]],
        *,
        limit: int,
        return_exceptions: bool,
    ) -> list[Any]:
        """Make calls; see `Step.invoke_many`.

        Calls begin in order, so that equal ones are told apart in the same way on every execution; and all of
        them are made even if one has failed, since which were under way by then is a matter of chance.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ConfigError(f"limit={limit!r} is no number of calls.", hint="Give 1 or more.")
        room, tasks, broken = asyncio.Semaphore(limit), list[asyncio.Task[Any]](), list[BaseException]()

        def ended(task: asyncio.Task[Any]) -> None:
            room.release()
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, FAILURES):
                broken.append(error)

        try:
            for call in calls:
                await room.acquire()
                if broken:
                    break
                task = asyncio.create_task(call())
                task.add_done_callback(ended)
                tasks.append(task)
            results = await _all(tasks)
        finally:
            for task in tasks:
                task.cancel()
        failures = [result for result in results if isinstance(result, FAILURES)]
        if failures and not return_exceptions:
            raise failures[0]
        return results

    async def call_tool(
        self,
        toolkit: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        version: str | None = None,
        deadline: Duration | datetime | None = None,
        on_unresolved: OnUnresolved = "wait",
        allow_cycle: bool = False,
    ) -> Any:
        """See `Step.call_tool`."""
        event = partial(tool_call, toolkit, tool)
        call = Call("tool", tool_capability_id(toolkit, tool), version, event, allow_cycle=allow_cycle)
        return await self._ask(call, arguments, deadline, on_unresolved, self._grant())

    async def request_task(
        self,
        capability_id: str,
        arguments: Mapping[str, Any],
        *,
        deadline: Duration | datetime | None = None,
        allow_cycle: bool = False,
        roles: Collection[str] | None = None,
        scopes: Collection[str] | None = None,
        permissions: Collection[str] | None = None,
        mode: str | None = None,
    ) -> Any:
        """See `Step.request_task`."""
        task_capability(capability_id)
        call = Call("task", capability_id, None, capability_call, allow_cycle=allow_cycle)
        grant = self._grant(roles, scopes, limits_of(permissions, mode))
        return await self._ask(call, arguments, deadline, "wait", grant, made_by=TaskInvocation)

    def _grant(
        self,
        roles: Collection[str] | None = None,
        scopes: Collection[str] | None = None,
        limits: ToolLimits | None = None,
    ) -> Grant | None:
        """What the called run may act with: the run's own grant, or the part of it that the call hands on."""
        started = self._place.history.started
        own = None if started is None else grant_in(started.payload)
        if own is not None:
            return narrowed(own, roles, scopes, limits)
        agent = self._place.journal.identity.agent
        return None if limits is None else limited_grant(principal_of(agent), limits)

    async def _ask(
        self,
        call: Call,
        arguments: Mapping[str, Any],
        deadline: Duration | datetime | None,
        on_unresolved: OnUnresolved,
        grant: Grant | None,
        made_by: type[Invocation] = Invocation,
    ) -> Any:
        capability_id = call.capability_id
        if on_unresolved not in get_args(OnUnresolved):
            raise ConfigError(f"on_unresolved={on_unresolved!r} is not known.", hint='Give "wait" or "fail".')
        due_ms = self._moment(deadline)
        call = call._replace(deadline_ms=due_ms, on_unresolved=on_unresolved, grant=grant)
        with said_of(f"The call of {capability_id}"):
            sent = to_json(arguments, "arguments")
        if not isinstance(sent, dict):
            raise StateError(
                f"The call of {capability_id} has {type(sent).__name__} as its arguments.",
                hint="Give a mapping: the arguments by their names.",
            )
        check_size(sent, "arguments", f"The call of {capability_id}")
        base = self._place.call_id(call.kind, capability_id, sent)
        await self._place.before_call(base, f"another call of {capability_id}")
        return await made_by(self._place, call, self._request_to_make(base), sent).result()

    def _moment(self, deadline: Duration | datetime | None) -> int | None:
        """A deadline in milliseconds since the epoch."""
        if deadline is None:
            return None
        if isinstance(deadline, datetime):
            return to_ms(deadline)
        seconds = in_seconds(deadline, "deadline", positive=True)
        return self._place.clock.now_ms() + max(1, round(seconds * 1000))

    def _request_to_make(self, base: str) -> str:
        """The id of a request in this attempt: that of an earlier attempt, unless it has failed. A failed one
        is made anew, once per attempt: else no retry could ever help.
        """
        history, request_id = self._place.history, base
        for attempt in range(1, self._place.attempt + 1):
            made = base if attempt == 1 else derived_id(base, str(attempt))
            if made not in history.sought and made not in history.invoked and made not in history.unresolved:
                request_id = made
                continue
            if attempt == self._place.attempt or not has_failed(history, made):
                return made
        return request_id


async def _all(tasks: Iterable[asyncio.Task[Any]]) -> list[Any]:
    """The results of all calls, or their failures; raise any other error when all have ended."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, FAILURES):
            raise result
    return results
