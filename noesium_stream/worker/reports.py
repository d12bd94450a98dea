"""What came of calls that ended after their process had given the run up: told to the inbox of the run.

The run's next owner waits for it (see the kernel's `effects`), and takes it once. Where the process ends, so
do its calls, and nothing is told: then the next owner finds that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from noesium_stream.clock import Clock
from noesium_stream.errors import CommitUnknownError, LogFullError, LogUnavailableError, NoesiumError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import EffectReported, SideEffectClass
from noesium_stream.log.port import EventLog
from noesium_stream.worker.session import RunSession

PATIENCE_S: Final = 1.0
"""A process that ends waits so long for what is on its way to the log."""

_PAUSE_S: Final = 0.5


class Reports:
    """The calls that one agent of a worker has left behind, and what it still has to say of them.

    Args:
        log: where the inboxes are.
        clock: for pauses.
        progress: takes one line for people.
    """

    def __init__(self, log: EventLog, clock: Clock, progress: Callable[[str], None]) -> None:
        self._log = log
        self._clock = clock
        self._progress = progress
        self._calls: set[asyncio.Task[Any]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._closed = False

    def of(self, session: RunSession, inbox: str) -> RunReports:
        """The heir of a run that is given up; `inbox` is where its next owner reads."""
        return RunReports(self, session, inbox)

    def keep(self, call: asyncio.Task[Any]) -> None:
        """Hold on to a call that goes on."""
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    def send(self, event: EventEnvelope, inbox: str) -> None:
        """Append it as soon as the log takes it; twice where nobody knows whether it did: one counts."""
        if self._closed:
            return
        task = asyncio.create_task(self._send(event, inbox), name=f"report {event.partition_key}")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, event: EventEnvelope, inbox: str) -> None:
        while True:
            try:
                await self._log.append([event], topic=inbox)
                return
            except (LogUnavailableError, LogFullError, CommitUnknownError):
                await self._clock.sleep(_PAUSE_S)
            except NoesiumError as error:
                self._progress(
                    f"what came of an effect of run {event.partition_key} is lost: {error.message}"
                )
                return

    async def close(self) -> None:
        """The process ends: so do its calls; what is known already is sent, if the log takes it now.

        What a call says that is broken off is not what came of it: a failure would be called again.
        """
        await asyncio.sleep(0)  # those that have just ended are heard
        self._closed = True
        for call in self._calls:
            call.cancel()
        for under_way in (set(self._calls), set(self._sending)):
            if under_way:
                await asyncio.wait(under_way, timeout=PATIENCE_S)
        for sending in self._sending:
            sending.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)


class RunReports:
    """The kernel's `Heir` of one run."""

    def __init__(self, reports: Reports, session: RunSession, inbox: str) -> None:
        self._reports = reports
        self._identity = session.identity
        self._clock = session.clock
        self._requested = session.history.requested
        self._inbox = inbox

    def keep(self, call: asyncio.Task[Any]) -> None:
        """See `Heir.keep`."""
        self._reports.keep(call)

    def report(self, event: EffectReported) -> None:
        """See `Heir.report`."""
        identity = self._identity
        envelope = event.to_envelope(
            identity.agent,
            identity.trace.child(self._clock.token(8)),
            event.intent_id,
            identity.correlation_id,
            partition_key=identity.run_id,
            idempotency_key=f"{event.intent_id}/report",
            metadata={"to": identity.agent.agent_type},
            clock=self._clock,
        )
        self._reports.send(envelope, self._inbox)

    def recover(self, outcome: EventEnvelope) -> None:
        """Report an outcome that was on its way to the log when the partition was lost.

        Not that of another process's call: its own report, which this outcome was made of, is still unread.
        """
        payload = outcome.payload
        requested = self._requested.get(payload["effect_id"])
        if requested is None or requested.payload["effect_class"] != SideEffectClass.EXTERNAL.value:
            return  # what is safe to repeat is repeated
        if requested.producer != self._identity.agent:
            return
        self.report(
            EffectReported(
                run_id=self._identity.run_id,
                effect_id=payload["effect_id"],
                intent_id=requested.event_id,
                outcome="completed" if outcome.event_type == "effect.completed" else "failed",
                duration_ms=payload["duration_ms"],
                result=payload.get("result"),
                error_type=payload.get("error_type"),
                message=payload.get("message"),
                error_class=payload.get("error_class"),
            )
        )
