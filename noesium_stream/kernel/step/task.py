"""A task for whoever is free (RFC-0001): its request, its answer, its end without one.

It is a call (`invocation`) for which nobody chooses a provider: `task.requested` goes to the topic of the
capability, in the same commit as into the run's journal, and whoever subscribes to the capability takes it.
Decision record:
 - The id of the task is that of the call and of the run that will do it. A step that is executed again finds
   its own task by it, and a task that comes twice to one agent meets itself there.
 - The arguments are judged by whoever takes the task: subscribers may offer different versions. The answer
   is not judged here: no version of the capability was chosen.
 - Nobody else is tried after an error. A provider that fails has taken the task, and the topic gives it to
   nobody else.
 - An open task is cancelled through its topic: the request follows it to whoever takes it, or has taken it.
"""

from __future__ import annotations

from noesium_stream.errors import CallLimitError, NoesiumError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.contract import Contract
from noesium_stream.event.standard import ReplyTo, TaskRequested
from noesium_stream.kernel.journal import TaskTopic
from noesium_stream.kernel.step.budget_share import share_of
from noesium_stream.kernel.step.invocation import Invocation, end_without_call


class TaskInvocation(Invocation):
    """One task of one step, from the request to the result."""

    async def _send_first(self) -> None:
        if self._id in self._history.invoked:
            return
        ended = end_without_call(self._history, self._id)
        if ended is not None:
            raise ended
        await self._journal.learn_tasks(self._call.capability_id)
        self._place.check_open()  # the log may have been waited for
        try:
            self._check_number()
        except CallLimitError as error:
            self._refuse(self._id, error)
        await self._send_task()

    def _check_number(self) -> None:
        limits, history = self._journal.limits, self._history
        if limits is not None:
            limits.check_number(history.calls_made, len(history.unanswered))

    async def _send_task(self) -> None:
        journal, run_id, call = self._journal, self._place.run_id, self._call
        identity = journal.identity
        requested = TaskRequested(
            task_id=self._id,
            run_id=self._id,
            capability_id=call.capability_id,
            payload=self._arguments,
            caller_agent_id=identity.agent.agent_id,
            caller_run_id=run_id,
            reply_to=ReplyTo(agent_type=identity.agent.agent_type, run_id=run_id, call_id=self._id),
            deadline_ms=self._handed_on(),
            grant=call.grant,
            labels=sorted(self._place.labels()) or None,
            budget=share_of(self._place),
            path=list(identity.path),
            allow_cycle=call.allow_cycle or None,
        )
        journal.stage(
            requested,
            trace=self._place.span(),
            causation_id=self._place.entered.event_id,
            idempotency_key=self._id,
            to=TaskTopic(call.capability_id, self._id),
        )
        await journal.commit()

    async def _send_again(self, failed_id: str, number: int, failure: NoesiumError, began: bool) -> bool:
        return False

    async def _contract(self, invoked: EventEnvelope) -> Contract:
        return Contract()

    async def _learn_address(self, invoked: EventEnvelope) -> None:
        await self._journal.learn_tasks(invoked.payload["capability_id"])

    def _address(self, invoked: EventEnvelope) -> TaskTopic:
        return TaskTopic(invoked.payload["capability_id"], invoked.payload["run_id"])
