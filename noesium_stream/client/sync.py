"""Synchronous client: the same calls for programs without an event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from noesium_stream.client.client import Client
from noesium_stream.client.run import Run
from noesium_stream.client.views.approvals import Approval
from noesium_stream.client.views.runs import RunInfo
from noesium_stream.client.views.tree_end import TreeEnd
from noesium_stream.client.views.unresolved_effects import Decision, UnresolvedEffect
from noesium_stream.durations import Duration
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.stream_pieces import Piece
from noesium_stream.event.rules.stream_progress import ToolProgress
from noesium_stream.event.standard import EffectResolved
from noesium_stream.log.port import Position

_T = TypeVar("_T")


class SyncClient:
    """`Client` for synchronous programs; its event loop runs in a thread of its own.

    Use it as a context manager. Arguments and errors are those of `Client`.
    """

    def __init__(self, log: str | None = None, *, agent_id: str = "client") -> None:
        self._client = Client(log, agent_id=agent_id)
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # if the log cannot be opened, the portal's thread ends too
            self._portal = stack.enter_context(start_blocking_portal())
            manager: AbstractContextManager[Client] = self._portal.wrap_async_context_manager(self._client)
            stack.enter_context(manager)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def portal(self) -> BlockingPortal:
        """The portal to the event loop's thread."""
        if self._portal is None:
            raise RuntimeError("use the client as a context manager")
        return self._portal

    def start(self, agent_type: str, input: Mapping[str, Any], **options: Any) -> SyncRun:
        """See `Client.start`."""
        return SyncRun(
            self.portal, self.portal.call(partial(self._client.start, agent_type, input, **options))
        )

    def publish(self, event: DomainEvent, **options: Any) -> Position:
        """See `Client.publish`."""
        return self.portal.call(partial(self._client.publish, event, **options))

    def get_run(self, run_id: str) -> SyncRun:
        """See `Client.get_run`."""
        return SyncRun(self.portal, self.portal.call(self._client.get_run, run_id))

    def list_runs(self, **filters: Any) -> list[RunInfo]:
        """See `Client.list_runs`."""
        return self.portal.call(partial(self._client.list_runs, **filters))

    def unresolved_effects(self) -> Sequence[UnresolvedEffect]:
        """See `Client.unresolved_effects`."""
        return self.portal.call(self._client.unresolved_effects)

    def approvals(self, **filters: Any) -> Sequence[Approval]:
        """See `Client.approvals`."""
        return self.portal.call(partial(self._client.approvals, **filters))


class SyncRun:
    """`Run` for synchronous programs."""

    def __init__(self, portal: BlockingPortal, run: Run) -> None:
        self._portal = portal
        self._run = run
        self.id = run.id
        self.agent_type = run.agent_type

    def result(self, timeout: Duration | None = None) -> Any:
        """See `Run.result`."""
        return self._portal.call(self._run.result, timeout)

    def events(self, *, follow: bool = True) -> Iterator[EventEnvelope]:
        """See `Run.events`."""
        return self._each(self._run.events(follow=follow))

    def pieces(self, cursor: str | None = None) -> Iterator[Piece]:
        """See `Run.pieces`."""
        return self._each(self._run.pieces(cursor))

    def progress(self) -> Iterator[ToolProgress]:
        """See `Run.progress`."""
        return self._each(self._run.progress())

    def _each(self, source: AsyncGenerator[_T, None]) -> Iterator[_T]:
        try:
            while True:
                try:
                    yield self._portal.call(source.__anext__)
                except StopAsyncIteration:
                    return
        finally:
            self._portal.call(source.aclose)

    def info(self) -> RunInfo:
        """See `Run.info`."""
        return self._portal.call(self._run.info)

    def signal(self, name: str, value: Any = None, *, idempotency_key: str | None = None) -> None:
        """See `Run.signal`."""
        self._portal.call(partial(self._run.signal, name, value, idempotency_key=idempotency_key))

    def unresolved_effects(self) -> Sequence[UnresolvedEffect]:
        """See `Run.unresolved_effects`."""
        return self._portal.call(self._run.unresolved_effects)

    def abandoned_effects(self) -> Sequence[UnresolvedEffect]:
        """See `Run.abandoned_effects`."""
        return self._portal.call(self._run.abandoned_effects)

    def resolve_effect(
        self, effect_id: str, decision: Decision, result: Any = None, **options: Any
    ) -> EffectResolved:
        """See `Run.resolve_effect`."""
        return self._portal.call(partial(self._run.resolve_effect, effect_id, decision, result, **options))

    def cancel(self, reason: str | None = None) -> None:
        """See `Run.cancel`."""
        self._portal.call(self._run.cancel, reason)

    def cancel_tree(self, reason: str | None = None, *, timeout: Duration | None = None) -> TreeEnd:
        """See `Run.cancel_tree`."""
        return self._portal.call(partial(self._run.cancel_tree, reason, timeout=timeout))

    def tree_end(self, timeout: Duration | None = None) -> TreeEnd:
        """See `Run.tree_end`."""
        return self._portal.call(self._run.tree_end, timeout)

    def approvals(self) -> list[Approval]:
        """See `Run.approvals`."""
        return self._portal.call(self._run.approvals)

    def questions(self) -> list[Approval]:
        """See `Run.questions`."""
        return self._portal.call(self._run.questions)

    def question(self, approval_id: str | None = None) -> Approval:
        """See `Run.question`."""
        return self._portal.call(self._run.question, approval_id)

    def approve(self, approval_id: str | None = None, **options: Any) -> Approval:
        """See `Run.approve`."""
        return self._portal.call(partial(self._run.approve, approval_id, **options))

    def reject(self, approval_id: str | None = None, **options: Any) -> Approval:
        """See `Run.reject`."""
        return self._portal.call(partial(self._run.reject, approval_id, **options))
