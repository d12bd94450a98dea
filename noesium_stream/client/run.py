"""Run handle for callers: what `RunView` reads, and signals, answers, decisions and cancellation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from noesium_stream.client.run_view import RunView
from noesium_stream.client.views.approvals import Approval, question_to_answer, read_questions
from noesium_stream.client.views.nested_approvals import choose_below
from noesium_stream.client.views.run_reader import Since
from noesium_stream.client.views.tree_end import TreeEnd, cancel_orphans, tree_end
from noesium_stream.client.views.tree_reader import TreeMember
from noesium_stream.client.views.unresolved_effects import Decision, open_ledgers, resolution
from noesium_stream.clock import Clock
from noesium_stream.durations import Duration
from noesium_stream.errors import ApprovalError, RunEndedError
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.rules.effect_ledger import EffectLedger
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.sealing.seal import subject_entry
from noesium_stream.event.standard import EffectResolved, RunCancelRequested, RunSignalled
from noesium_stream.log.port import EventLog
from noesium_stream.projection.builtin.execution import OF_RUNS

if TYPE_CHECKING:
    from noesium_stream.client.views.run_index import RunIndex


class Run(RunView):
    """A handle of one run, made by `Client.start` and `Client.get_run`; cheap, and valid in any process."""

    def __init__(
        self,
        log: EventLog,
        agent_type: str,
        run_id: str,
        producer: AgentRef,
        clock: Clock,
        *,
        since: Since | None = None,
        index: RunIndex | None = None,
        pieces_since: Mapping[int, int] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """`about`: see `_people`; None: it is not known."""
        super().__init__(log, agent_type, run_id, since=since, index=index, pieces_since=pieces_since)
        self._producer = producer
        self._clock = clock
        self._about = about

    async def signal(self, name: str, value: Any = None, *, idempotency_key: str | None = None) -> None:
        """Send a message to the run; messages are delivered once, in the order of sending.

        With an idempotency key a repeated call changes nothing, for as long as the run is open, whatever name
        and value it has: the first signal with this key and this client's agent id counts. Without a key
        each call is a message of its own.

        Raises:
            StateError: the value has no JSON form.
            RecordTooLargeError, LogUnavailableError
            CommitUnknownError: the signal was sent and not acknowledged; with a key, call again.
        """
        await self.send_signal(name, value, idempotency_key=idempotency_key)

    async def send_signal(self, name: str, value: Any = None, *, idempotency_key: str | None = None) -> str:
        """As `signal`; return the id of the event that was sent."""
        return await self._send(RunSignalled(run_id=self.id, name=name, value=value), key=idempotency_key)

    def reading_since(self, since: Since | None) -> Run:
        """Make another handle of the run, which reads its journal from these offsets on; None: all of it."""
        return Run(
            self._log,
            self.agent_type,
            self.id,
            self._producer,
            self._clock,
            since=since,
            index=self._index,
            pieces_since=self._pieces_since,
            about=self._about,
        )

    async def resolve_effect(
        self,
        effect_id: str,
        decision: Decision,
        result: Any = None,
        *,
        reason: str | None = None,
        by: str | None = None,
    ) -> EffectResolved:
        """Decide an effect of unknown outcome, or a failed compensation; return the event that was sent.

        `effect_id` may be a prefix of the id. Decisions: "result": the effect was done and returned `result`;
        "retry": call it again with the same idempotency key; "fail": the effect was not done, and the node
        gets an `EffectFailedError` (a compensation is given up). `by` is the person or program that decides;
        default: this client's agent id.

        Raises:
            RunNotFoundError: there is no such run.
            RunEndedError: the run has ended.
            EffectDecisionError: there is no such effect, it waits for no decision, or not for this one.
            StateError: `result` has no JSON form.
        """
        info = await self.info()
        if info.status in ENDINGS.values():
            raise RunEndedError(
                f"Run {self.id} has ended already: {info.status}.", hint=f"See: noesium show {self.id}"
            )
        ledgers = await open_ledgers(self._log, self.agent_type, self.id)
        event = resolution(
            ledgers.get(self.id, EffectLedger()),
            self.id,
            effect_id,
            decision,
            result,
            reason,
            by or self._producer.agent_id,
        )
        await self._send(event)
        return event

    async def cancel(self, reason: str | None = None) -> None:
        """Request that the run, and all runs that it has called, end as cancelled."""
        await self._send(RunCancelRequested(run_id=self.id, reason=reason))

    async def cancel_tree(self, reason: str | None = None, *, timeout: Duration | None = None) -> TreeEnd:
        """Cancel the run and all runs below it, and wait until each of them has ended; say how.

        A second call waits for the same cancellation. Runs whose callers have ended without telling them, as
        those of an earlier release did, are told, too.

        Args:
            reason: why; it is recorded with the run.
            timeout: as of `result`. When it is over, `TreeEnd.ended` is False, and `unstopped` names the runs
                that are still open and why; the cancellation goes on.

        Raises:
            RunNotFoundError: there is no such run.
            PermissionDeniedError: the policy does not allow it, or the request is wrong for another reason.
        """
        asked = await self.cancel_request()
        asked_ms = self._clock.now_ms() if asked is None else asked.timestamp_ms
        is_open = (await self.info()).status not in ENDINGS.values()
        if is_open and asked is None:
            await self.cancel(reason)

        async def tell(orphan: TreeMember) -> None:
            run = self.other(orphan.agent_type, orphan.run_id)
            if await run.cancel_request() is None:
                await run.cancel(reason)

        if await cancel_orphans(self.tree_reader(OF_RUNS), tell) or is_open:
            return await self._tree_end(asked_ms, timeout, self.require_cancel if is_open else None)
        return await tree_end(self._log, self.tree_reader(OF_RUNS), None if asked is None else asked_ms)

    def other(self, agent_type: str, run_id: str) -> Run:
        """Make the handle of another run that is known to exist on the same log."""
        return Run(self._log, agent_type, run_id, self._producer, self._clock, index=self._index)

    async def approve(
        self,
        approval_id: str | None = None,
        *,
        value: Any = None,
        by: str | None = None,
        idempotency_key: str | None = None,
    ) -> Approval:
        """Answer a question of the run with yes; the run goes on in its worker.

        If the run itself has no open question, that of a run below it is answered (see `questions`), as if it
        were asked there: once, whoever else answers it.

        Args:
            approval_id: id of the question or a prefix of it; optional if only one question is open.
            value: JSON value that the question asks for; None: no value.
            by: the person or program that answers; default: this client's agent id.
            idempotency_key: of the event that is sent; it tells answers apart, and drops none.

        Raises:
            RunEndedError: the run has ended.
            ApprovalClosedError: the question was answered before, or its deadline has passed.
            ApprovalError: no question is open, several are, none has this id, or `by` may not answer it, as
                far as that is known now.
            EventValidationError: the value does not match the question's schema; the error names the field.
        """
        return await self._answer(approval_id, True, value, by, idempotency_key)

    async def reject(
        self,
        approval_id: str | None = None,
        *,
        value: Any = None,
        by: str | None = None,
        idempotency_key: str | None = None,
    ) -> Approval:
        """Answer a question of the run with no; see `approve`."""
        return await self._answer(approval_id, False, value, by, idempotency_key)

    async def question(self, approval_id: str | None = None) -> Approval:
        """Return the question that `approve` and `reject` answer; raises what they raise."""
        questions = await read_questions(self._log, self.agent_type, self.id)
        now_ms = self._clock.now_ms()
        try:
            return question_to_answer(questions, self.agent_type, self.id, approval_id, now_ms)
        except ApprovalError as error:
            own = [one for one in questions.all() if approval_id and one.approval_id.startswith(approval_id)]
            if own or any(one.status == "open" for one in questions.all()):
                raise
            return choose_below(await self._questions_below(), approval_id, error)

    async def _answer(
        self, approval_id: str | None, approved: bool, value: Any, by: str | None, key: str | None
    ) -> Approval:
        now_ms = self._clock.now_ms()
        question = await self.question(approval_id)
        if question.run_id != self.id:
            asking = self.other(question.agent_type, question.run_id)
            return await asking._answer(question.approval_id, approved, value, by, key)
        event = question.answer(approved, to_json(value, "value"), by or self._producer.agent_id)
        answer_id = await self._send(event, question.event_id, key=key)
        # Others may have answered between the two: each is told whose answer counts.
        sent = await read_questions(self._log, self.agent_type, self.id)
        sent.require_counted(question, answer_id, now_ms)
        return next(one for one in sent.all() if one.approval_id == question.approval_id)

    async def _send(
        self, event: DomainEvent, causation_id: str | None = None, *, key: str | None = None
    ) -> str:
        envelope = root_event(
            event,
            self._producer,
            self._clock,
            causation_id=causation_id,
            correlation_id=self.id,
            partition_key=self.id,
            idempotency_key=key,
            metadata={"to": self.agent_type, **await self._people()},
        )
        await self._log.append([envelope])
        return envelope.event_id

    async def _people(self) -> Mapping[str, Any]:
        """The entry of metadata that seals a request for the people whom the run is about.

        A handle that did not start the run asks the run's first command, once.
        """
        if self._about is not None:
            return self._about
        if self._log.decoder.sealer.keys is not None:  # without them nothing can have been sealed
            async with aclosing(self._asked()) as commands:
                async for command in commands:
                    self._about = subject_entry(command.metadata)
                    return self._about
        return {}
