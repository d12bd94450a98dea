"""Calls of tools: each is a run, which the client waits for, or has as a task."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams

from noesium_stream.client import Client, Run
from noesium_stream.clock import Clock
from noesium_stream.errors import ApprovalClosedError, CapabilityInputError, RunEndedError
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.payload.value import to_json
from noesium_stream.mcp_server.catalogue import (
    CONTENT_TAG,
    INPUT_TAG,
    TASK_TAG,
    Catalogue,
    check_name,
    is_tagged,
)
from noesium_stream.mcp_server.questions import decision, input_requests
from noesium_stream.mcp_server.requests import Asker, Context, missing_tasks
from noesium_stream.mcp_server.task import BLOCKS, METADATA, TaskFold, error_result
from noesium_stream.serving.runs import Runs, task_id_of

KEY_FIELD: Final = "io.noesium/idempotencyKey"
"""Field of `_meta` with the idempotency key of a call."""
VERSION_FIELD: Final = "io.noesium/version"
"""Field of `_meta` with a range of versions of the capability."""
MOST_ID: Final = 256
"""Characters of an idempotency key."""
MOST_CALLS: Final = 256
"""Calls that wait at once."""
MOST_OF_ONE: Final = 64
"""Calls of one requester that wait at once."""
ANSWER_S: Final = 10.0
"""How long the answer to a question is waited for until the run has it, in seconds."""

Tasks = Runs[TaskFold, str]


class Calls:
    """Takes calls of tools.

    Args:
        tasks: the runs on the log.
        catalogue: what may be called.
        client: gives the client of a requester, by name.
        clock: source of ids.
        wait_s: how long a call waits for its run, in seconds.
        task_s: how long a call waits before it becomes a task, in seconds.
    """

    def __init__(
        self,
        tasks: Tasks,
        catalogue: Catalogue,
        client: Callable[[str], Client],
        clock: Clock,
        *,
        wait_s: float,
        task_s: float,
    ) -> None:
        self._tasks = tasks
        self._catalogue = catalogue
        self._client = client
        self._clock = clock
        self._wait_s = wait_s
        self._task_s = task_s
        self._waiting: Counter[str] = Counter()
        self._background: set[asyncio.Task[None]] = set()
        self.closing = False

    async def call(self, context: Context, params: CallToolRequestParams, asker: Asker) -> Any:
        """Answer `tools/call`: with a result, what the run asks, or a task.

        Raises:
            MCPError: the call cannot be taken.
            NoesiumError: as `Client.start`, `Catalogue.find` and `Runs.find`.
        """
        async with self._counted(asker.name):
            if params.request_state is not None:
                return await self._go_on(context, params, asker)
            key = (context.meta or {}).get(KEY_FIELD)
            try:
                run = await self._begin(params, asker, key, (context.meta or {}).get(VERSION_FIELD))
            except CapabilityInputError as error:
                return error_result(error.message)
            try:
                run, fold = await self._tasks.find(task_id_of(run.agent_type, run.id), asker.name)
                _check_same(params.name, params.arguments or {}, fold)
                return await self._answer(context, run, fold, asker, first=True)
            except asyncio.CancelledError:
                if key is None and (asker.modern or not asker.http) and not self.closing:
                    self._later(_cancel(run, "the client has gone"))
                raise

    async def _go_on(self, context: Context, params: CallToolRequestParams, asker: Asker) -> Any:
        """Take the answers to what a call has asked, and wait again."""
        run, fold = await self._tasks.find(params.request_state or "", asker.name)
        responses = {
            name: response.model_dump(by_alias=True, mode="json", exclude_none=True)
            for name, response in (params.input_responses or {}).items()
        }
        await self.respond(run, fold, responses, asker)
        return await self._answer(context, run, fold, asker, first=False)

    async def _begin(
        self, params: CallToolRequestParams, asker: Asker, given_key: object, version: object
    ) -> Run:
        key = (
            self._clock.uuid7() if given_key is None else check_name(f"_meta.{KEY_FIELD}", given_key, MOST_ID)
        )
        key = f"{METADATA} {key}"
        arguments = params.arguments or {}
        wanted = None if version is None else check_name(f"_meta.{VERSION_FIELD}", version, MOST_ID)
        if given_key is not None:
            types = await self._catalogue.types(params.name)
            met = await self._tasks.started(types, key, asker.name)
            if met is not None:
                return met[0]
        offer = await self._catalogue.find(params.name, wanted, asker.name)
        if is_tagged(offer, TASK_TAG) and not asker.tasks:
            raise missing_tasks()
        offer.check(arguments)
        mode = "task" if is_tagged(offer, TASK_TAG) else None
        said = {
            "tool": params.name,
            "mode": "input" if is_tagged(offer, INPUT_TAG) else mode,
            "content": BLOCKS if is_tagged(offer, CONTENT_TAG) else None,
        }
        return await self._client(asker.name).start(
            offer.agent_type,
            arguments,
            idempotency_key=key,
            capability=None if offer.capability is None else offer.capability.id,
            metadata={METADATA: {name: value for name, value in said.items() if value is not None}},
        )

    async def _answer(self, context: Context, run: Run, fold: TaskFold, asker: Asker, *, first: bool) -> Any:
        """Wait for the run, as long as this client may wait, and answer with what it has come to."""
        mode = fold.said("mode")
        to_task = asker.tasks and not (mode == "input" and first and asker.asks)
        at_once = to_task and mode in ("task", "input")
        limit_s = 0.0 if at_once else (self._task_s if asker.tasks else self._wait_s)

        def stops() -> bool:
            return fold.ended or (bool(fold.questions) and (asker.asks or asker.tasks))

        await self._wait(context, run, fold, stops, limit_s)
        if fold.ended and not at_once:
            return fold.call_result(modern=asker.modern)
        if to_task or (asker.tasks and not fold.questions):
            return {"resultType": "task", **fold.task(asks=asker.asks)}
        if not asker.modern:
            return error_result(f"The run {fold.run_id} has not ended in {self._wait_s:g} s; it goes on.")
        asked = input_requests(fold.questions) if asker.asks else {}
        return {
            "resultType": "input_required",
            **({"inputRequests": asked} if asked else {}),
            "requestState": fold.task_id,
        }

    async def _wait(
        self, context: Context, run: Run, fold: TaskFold, stops: Callable[[], bool], limit_s: float
    ) -> None:
        """Fold what comes, tell the client of it, and return when `stops` says so, or it is time."""
        if limit_s == 0 or stops():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s), aclosing(self._tasks.follow(run, fold)) as changes:
                steps = 0
                async for change in changes:
                    steps += 1
                    await context.session.report_progress(steps, message=change)
                    if stops():
                        return

    async def respond(self, run: Run, fold: TaskFold, responses: Mapping[str, Any], asker: Asker) -> None:
        """Answer open questions of a run; return when it has the answers, or after `ANSWER_S`.

        Answers to what is not asked, or not any more, change nothing.

        Raises:
            EventValidationError: a response is none, or does not fit what its question wants.
            ApprovalError: the requester may not answer.
        """
        keys = set()
        for question_id, response in responses.items():
            asked = fold.questions.get(question_id)
            decided = None if asked is None else decision(asked, response)
            if decided is None:
                continue
            approved, value = decided
            key = f"{fold.answer_key}{question_id} {asker.name}"
            answer = run.approve if approved else run.reject
            with suppress(ApprovalClosedError, RunEndedError):
                await answer(question_id, value=value, by=asker.name, idempotency_key=key)
                keys.add(key)
        if keys:
            await self._until_answered(run, fold, keys)

    async def _until_answered(self, run: Run, fold: TaskFold, keys: set[str]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S), aclosing(self._tasks.follow(run, fold)) as changes:
                async for _ in changes:
                    if keys <= fold.answers:
                        return

    @asynccontextmanager
    async def _counted(self, name: str) -> AsyncIterator[None]:
        if self._waiting.total() >= MOST_CALLS or self._waiting[name] >= MOST_OF_ONE:
            raise MCPError(INTERNAL_ERROR, "Too many calls wait already: try again later.")
        self._waiting[name] += 1
        try:
            yield
        finally:
            self._waiting[name] -= 1

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Wait for what is under way in the background."""
        self.closing = True
        await asyncio.gather(*self._background, return_exceptions=True)


async def _cancel(run: Run, reason: str) -> None:
    if await run.cancel_request() is None:
        await run.cancel(reason)


def _check_same(name: str, arguments: dict[str, Any], fold: TaskFold) -> None:
    """Refuse a call that has begun a run with other arguments or another tool.

    Raises:
        MCPError: the call differs.
    """
    if fold.said("tool") != name:
        raise MCPError(INVALID_PARAMS, f"A call with this {KEY_FIELD} was of another tool.")
    if canonical_json(fold.arguments) != canonical_json(to_json(arguments, "arguments")):
        raise MCPError(INVALID_PARAMS, f"A call with this {KEY_FIELD} had other arguments.")
