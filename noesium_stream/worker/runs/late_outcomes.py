"""Outcomes of calls that end after their process has given the run up: they are reported to the run's inbox.

The run's next owner waits for the report (see the kernel's `effects`) and takes it once. If the process ends,
its calls end and nothing is reported: the next owner then finds that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal

from noesium_stream.clock import Clock
from noesium_stream.errors import CommitUnknownError, LogFullError, LogUnavailableError, NoesiumError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.sealing.seal import subject_entry
from noesium_stream.event.standard import EffectReported, SideEffectClass
from noesium_stream.log.port import EventLog
from noesium_stream.worker.runs.run_session import RunSession

PATIENCE_S: Final = 1.0
"""How long an ending process waits for calls to end and reports to reach the log, in seconds."""

_PAUSE_S: Final = 0.5
_OUTCOMES: Final[dict[str, Literal["completed", "failed"]]] = {
    "effect.completed": "completed",
    "effect.failed": "failed",
}


class OutcomeReports:
    """Calls of given-up runs of one agent that still go on, and the reports of their outcomes.

    Args:
        log: the log that has the inboxes.
        clock: clock of the pauses between attempts.
        progress: takes one line for people.
    """

    def __init__(self, log: EventLog, clock: Clock, progress: Callable[[str], None]) -> None:
        self._log = log
        self._clock = clock
        self._progress = progress
        self._calls: set[asyncio.Task[Any]] = set()
        self._sending: set[asyncio.Task[None]] = set()
        self._closed = False

    def of(self, session: RunSession, inbox: str) -> RunOutcomeReports:
        """Make the heir of a run that is given up; its next owner reads `inbox`."""
        return RunOutcomeReports(self, session, inbox)

    def keep(self, call: asyncio.Task[Any]) -> None:
        """Keep a reference to a call that goes on."""
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    def send(self, event: EventEnvelope, inbox: str) -> None:
        """Append a report, as soon as the log takes it.

        An append of unknown outcome is repeated: of two equal reports one counts.
        """
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
        """Cancel the calls, because the process ends; send reports that are ready, if the log takes them now.

        The error of a cancelled call is not reported as its outcome: the effect would be called again.
        """
        await asyncio.sleep(0)  # calls that have just ended report now
        self._closed = True
        for call in self._calls:
            call.cancel()
        for under_way in (set(self._calls), set(self._sending)):
            if under_way:
                await asyncio.wait(under_way, timeout=PATIENCE_S)
        for sending in self._sending:
            sending.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)


class RunOutcomeReports:
    """The kernel's `Heir` of one run."""

    def __init__(self, reports: OutcomeReports, session: RunSession, inbox: str) -> None:
        self._reports = reports
        self._identity = session.identity
        self._about = subject_entry(session.command.metadata)
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
            metadata={"to": identity.agent.agent_type, **self._about},
            clock=self._clock,
        )
        self._reports.send(envelope, self._inbox)

    def recover(self, outcome: EventEnvelope, *, begun: bool = True) -> None:
        """Report an outcome that was on its way to the log when the partition was lost.

        With `begun=False` it says that the call never began.

        Not if another process made the call: its own report, from which this outcome was made, is still
        unread.
        """
        payload = outcome.payload
        requested = self._requested.get(payload["effect_id"])
        if requested is None or requested.payload["effect_class"] != SideEffectClass.EXTERNAL.value:
            return  # the effect is safe to repeat
        if requested.producer != self._identity.agent:
            return
        self.report(
            EffectReported(
                run_id=self._identity.run_id,
                effect_id=payload["effect_id"],
                intent_id=requested.event_id,
                outcome=_OUTCOMES[outcome.event_type] if begun else "not_begun",
                duration_ms=payload["duration_ms"],
                result=payload.get("result"),
                error_type=payload.get("error_type"),
                message=payload.get("message"),
                error_class=payload.get("error_class"),
            )
        )
