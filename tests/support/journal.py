"""A run's journal in a list: for tests of the kernel alone. It can die before or after any commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from noesium_stream.clock import SystemClock
from noesium_stream.errors import CommitUnknownError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.rules.call_limits import CallLimits
from noesium_stream.event.rules.contract import Contract
from noesium_stream.kernel import Destination, Provider, RunHistory, RunIdentity
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.journal import RunPieces, Wanted

RUN_ID = "0199a000-0000-7000-8000-000000000001"


class ListJournal:
    """`RunJournal` over `log`, the events that survived; staged ones are lost with the journal.

    The commit number `dies_at` (from 1) raises: with `reaches_log` after its events are on the log.
    """

    def __init__(
        self, log: list[EventEnvelope] | None = None, *, dies_at: int | None = None, reaches_log: bool = False
    ) -> None:
        self.log = log if log is not None else []
        self.history = RunHistory()
        self.clock = SystemClock()
        self.activity = Activity()
        self.pieces: RunPieces | None = None
        self.commits = 0
        self.limits: CallLimits | None = CallLimits()
        self._dies_at, self._reaches_log = dies_at, reaches_log
        self._dead = False
        self._staged: list[EventEnvelope] = []
        self.identity = RunIdentity(
            RUN_ID, AgentRef("sample", "sample", "1"), TraceContext("1" * 32, "2" * 16), RUN_ID, "start"
        )
        for event in self.log:
            self.history.apply(event)

    def stage(
        self,
        event: DomainEvent,
        *,
        trace: TraceContext,
        causation_id: str | None,
        idempotency_key: str | None = None,
        to: Destination | None = None,
    ) -> EventEnvelope:
        envelope = event.to_envelope(
            self.identity.agent,
            trace,
            causation_id if causation_id != "start" else None,
            RUN_ID,
            partition_key=to.run_id if to else RUN_ID,
            idempotency_key=idempotency_key,
            clock=self.clock,
        )
        self._staged.append(envelope)
        self.history.apply(envelope)
        return envelope

    def check(self, event: DomainEvent, payload: dict[str, Any]) -> None:
        """Every event is known here."""

    def recorded(self, call_id: str) -> EventEnvelope | None:
        return None

    def flush(self) -> None:
        if not self._staged:
            return
        self.commits += 1
        dead = self._dies_at is not None and self.commits >= self._dies_at
        if not dead or (self._reaches_log and self.commits == self._dies_at):
            self.log.extend(self._staged)
        self._staged = []
        self._dead = self._dead or dead

    def savepoint(self) -> int:
        return len(self._staged)

    def rollback(self, savepoint: int) -> None:
        del self._staged[savepoint:]

    async def commit(self) -> None:
        self.flush()
        if self._dead:
            raise CommitUnknownError("the process died")

    async def resolve(self, wanted: Wanted) -> Provider:
        raise NotImplementedError(wanted.capability_id)

    async def until_offered(self, wanted: Wanted, deadline_ms: int | None = None) -> None:
        await self.until(lambda: False, deadline_ms)

    async def contract(self, invoked: Mapping[str, Any]) -> Contract:
        return Contract()

    async def learn_inbox(self, agent_type: str) -> None:
        """Every inbox is known here."""

    async def learn_tasks(self, capability_id: str) -> None:
        """So is every task topic."""

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        await self.commit()
        while deadline_ms is not None and not ready():
            await self.clock.sleep((deadline_ms - self.clock.now_ms()) / 1000)
        assert ready(), "nobody else writes to this journal"

    def has_passed(self, due_ms: int) -> bool:
        return self.clock.now_ms() >= due_ms

    def types(self) -> list[str]:
        return [event.event_type for event in self.log]

    def deltas(self) -> dict[tuple[int, str], Any]:
        return {key: event.payload["delta"] for key, event in self.history.completed.items()}
