"""The gate before a tool call: its definition, the rules, its arguments, and a person (RFC-2003 §10.3).

Decision record: what was decided is on the log (the intent, the refusal, the question), and a second
execution reads it there; a policy that has changed since concerns calls that have not begun. So a replay
judges nothing: it repeats the questions of the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from noesium_stream.errors import ToolError, ToolPermissionError
from noesium_stream.event.trust.permission_needs import needs_of
from noesium_stream.kernel.step.answer import Answer
from noesium_stream.kernel.step.effect import Effect
from noesium_stream.kernel.step.position import Place
from noesium_stream.kernel.step.told_effect import approval_of
from noesium_stream.kernel.step.waits import Waits
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.bounds import Bounds
from noesium_stream.tool.call_state import ToolCall
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.judge import ToolRules, judge
from noesium_stream.tool.verdict import Allowed, Ask, Denied, Verdict

ANSWER: Final[Mapping[str, Any]] = {
    "anyOf": [
        {"type": "null"},
        {"type": "boolean"},
        {
            "type": "object",
            "properties": {"arguments": {"type": "object"}, "always": {"type": "boolean"}},
            "additionalProperties": False,
        },
    ]
}
"""What an answer may say beside yes or no: other arguments, or that it goes for equal calls of the run."""

Accepted = Callable[[AtomicTool], bool]
"""Whether the definition of a tool is the one that is in force."""


class CallGate:
    """The gate of one call; `effect` is the effect that makes it."""

    def __init__(
        self,
        place: Place,
        effect: Effect,
        call: ToolCall,
        rules: Callable[[], ToolRules],
        accepted: Accepted,
        bounds: Bounds,
        make_context: Callable[[Place, ToolCall, str, int], ToolContext],
    ) -> None:
        self._place = place
        self._effect = effect
        self._call = call
        self._rules = rules
        self._accepted = accepted
        self._bounds = bounds
        self._make_context = make_context

    def turn(self) -> AbstractAsyncContextManager[None]:
        """See `Gate.turn`."""
        return self._bounds.turn(self._call.tool)

    async def pass_by(self, call_id: str, *, begins: bool) -> Exception | None:
        """See `Gate.pass_by`."""
        place = self._place
        approval_id = approval_of(call_id)
        asked = place.history.approvals.get(approval_id) or place.journal.recorded(approval_id)
        if asked is None and not begins:
            return None
        answer = None
        if asked is not None:
            answer = self._answered(approval_id, await Waits(place).ask_again(asked))
        self._label()
        self._need()
        self._take_over()
        if not begins or place.journal.limits is None:
            return None
        try:
            await self._admit(call_id, answer)
        except ToolError as refused:
            if refused.retriable:
                raise  # nobody has judged the call
            return refused
        finally:
            self._take_over()
        return None

    def _take_over(self) -> None:
        """Have the effect be about the arguments as they are by now; a person may have edited them."""
        self._effect.arguments = {"args": [], "kwargs": self._call.shown}
        self._effect.timeout = timedelta(milliseconds=self._call.limit_ms)

    async def _admit(self, call_id: str, answer: Answer | None) -> None:
        """Return when the call may begin.

        Raises:
            ToolError: it may not.
        """
        call = self._call
        if not self._accepted(call.tool):
            raise ToolPermissionError(
                f"The definition of {call.tool.name} has changed, or was not there when the agent started, "
                "and nobody has accepted the new one.",
                reason="definition",
                hint=f"Read `noesium tools diff {call.tool.name}`, then `noesium tools accept`; or name the "
                "tool in the agent's `tools`.",
            )
        if answer is not None and not answer.approved:
            raise _refused(call, answer)
        verdict = await self._judged(call_id)
        if isinstance(verdict, Ask) and answer is None and call.arguments_hash not in self._allowed:
            answer = await self._ask(approval_of(call_id), verdict)
            if not answer.approved:
                raise _refused(call, answer)
            verdict = await self._judged(call_id)  # its arguments may have been edited
        call.granted = verdict.granted

    @property
    def _allowed(self) -> set[str]:
        return self._place.history.tools.allowed

    async def _judged(self, call_id: str) -> Allowed | Ask:
        call = self._call
        rules = self._rules()
        call.mode = rules.mode
        verdict = _permitted(judge(call.tool, call.arguments, rules, call.labels))
        call.check_input()
        if call.tool.find_needs is None:
            return verdict
        context = self._make_context(self._place, call, call_id, call.limit_ms)
        context = replace(context, granted_permissions=rules.effective)
        found = tuple(await call.tool.find_needs(dict(call.arguments), context))
        self._need(found)
        return _permitted(judge(call.tool, call.arguments, rules, call.labels, found))

    async def _ask(self, approval_id: str, verdict: Ask) -> Answer:
        call = self._call
        self._effect.retries = None  # a yes is for one call
        question = {
            "tool": call.tool.name,
            "arguments": call.shown,
            "reason": verdict.reason,
            "side_effects": call.tool.side_effect_class.value,
            "permissions": list(call.needs),
            "labels": {name: list(found) for name, found in call.labels.items()},
            "arguments_hash": call.arguments_hash,
        }
        answer = await Waits(self._place).ask(
            question,
            schema=ANSWER,
            approvers=verdict.approvers,
            minimum=verdict.minimum if verdict.minimum > 1 else None,
            approval_id=approval_id,
        )
        return self._answered(approval_id, answer)

    def _need(self, found: Sequence[str] = ()) -> None:
        call = self._call
        call.needs = tuple(dict.fromkeys((*needs_of(call.tool.permissions, call.arguments), *found)))

    def _label(self) -> None:
        provenance = self._place.history.provenance
        self._call.labels = provenance.of_arguments(self._place.entered.event_id, self._call.arguments)

    def _answered(self, approval_id: str, answer: Answer) -> Answer:
        """Take over what an answer says of the call."""
        self._effect.retries = None
        self._call.approval_id = approval_id
        if answer.approved and isinstance(answer.value, Mapping):
            edited = answer.value.get("arguments")
            if isinstance(edited, Mapping):
                self._call.arguments = dict(edited)
                self._need()
                self._label()
            self._call.always = answer.value.get("always") is True
        return answer


def _permitted(verdict: Verdict) -> Allowed | Ask:
    if isinstance(verdict, Denied):
        raise ToolPermissionError(verdict.reason, reason=verdict.kind, hint=verdict.hint)
    return verdict


def _refused(call: ToolCall, answer: Answer) -> ToolPermissionError:
    said = answer.value.get("reason") if isinstance(answer.value, Mapping) else None
    why = f": {said}" if isinstance(said, str) else "."
    return ToolPermissionError(
        f"{answer.answered_by} has refused the call of {call.tool.name}{why}", reason="approval"
    )
