"""The gate before a model call: whether the run's budget has room for it.

Decision record: as with tools (`tool/gate.py`), what was decided is on the log, and a replay judges nothing.
A call that is made again after a crash reserves once more: nobody knows what the first one cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

from noesium_stream.clock import derived_id
from noesium_stream.errors import BudgetExceededError, ModelError, ModelTooDearError
from noesium_stream.event.rules.budget import WORDS
from noesium_stream.event.rules.slices import DOMAIN, Want
from noesium_stream.event.standard import BudgetRequested
from noesium_stream.event.trust.budget import NANO, Budget
from noesium_stream.kernel.journal import FactTopic
from noesium_stream.kernel.step.answer import Answer
from noesium_stream.kernel.step.budget_share import age_ms
from noesium_stream.kernel.step.position import Place
from noesium_stream.kernel.step.told_effect import approval_of
from noesium_stream.kernel.step.waits import Waits
from noesium_stream.llm.call import ModelCall

ANSWER: Final[Mapping[str, Any]] = {
    "anyOf": [
        {"type": "null"},
        {"type": "boolean"},
        {
            "type": "object",
            "properties": {
                "usd": {"type": "number", "minimum": 0, "maximum": 1_000_000},
                "tokens": {"type": "integer", "minimum": 0, "maximum": 10**15},
                "calls": {"type": "integer", "minimum": 0, "maximum": 10**15},
                "seconds": {"type": "number", "minimum": 0, "maximum": 10**9},
            },
            "additionalProperties": False,
        },
    ]
}
"""What an answer may say beside yes or no: how much more the run may spend; else just this call."""


class ModelGate:
    """The gate of one call."""

    def __init__(self, place: Place, call: ModelCall) -> None:
        self._place = place
        self._call = call

    def turn(self) -> AbstractAsyncContextManager[None]:
        """See `Gate.turn`: a provider's own limits are its to say."""
        return nullcontext()

    async def pass_by(self, call_id: str, *, begins: bool) -> Exception | None:
        """See `Gate.pass_by`."""
        place, approval_id = self._place, approval_of(call_id)
        asked = place.history.approvals.get(approval_id) or place.journal.recorded(approval_id)
        if asked is None and not begins:
            return None
        answer, about = None, None
        if asked is not None:
            answer = self._answered(approval_id, await Waits(place).ask_again(asked))
            about = asked.payload["question"].get("account")
        if not begins or place.journal.limits is None:
            return None
        try:
            await self._admit(approval_id, answer, about)
        except ModelError as refused:
            return refused
        # 1. From here to the event of the intent, a call beside this one sees what it takes.
        place.history.spending.pending[call_id] = self._want
        # 2. A call that was begun before its process died gets its second reservation before it is made.
        if call_id in place.history.requested:
            place.stage(self._call.repeated(call_id), place.history.requested[call_id].event_id)
            await place.journal.commit()
        return None

    def forget(self) -> None:
        """Drop what a call has taken that did not come as far as the log."""
        for call_id in [id_ for id_, want in self._pending.items() if want is self._want]:
            del self._pending[call_id]

    @property
    def _pending(self) -> dict[str, Want]:
        return self._place.history.spending.pending

    @property
    def _want(self) -> Want:
        return self._call.want

    async def _admit(self, approval_id: str, answer: Answer | None, about: str | None) -> None:
        """Return when the call may begin: nothing is awaited between the last look and that.

        Args:
            approval_id: of the question to a person.
            answer: to that question, if it was asked.
            about: the account that the question is about; None: the run's own budget.

        Raises:
            BudgetExceededError: it may not.
        """
        limits = self._place.journal.limits
        budget = None if limits is None else limits.budget
        while True:
            allowed = answer is not None and answer.approved
            kind = None if allowed and about is None else self._exceeded(budget)
            account = None
            if kind is None:
                account = self._account_without_room(budget, about if allowed else None)
                if account is None:
                    return
                refused = await self._ask_account(account)
                if refused is None:
                    continue
                kind, said = refused["kind"], f"{account} has no room for it: {refused['reason']}"
            else:
                said = self._said(kind, budget)
            if answer is None and budget is not None and budget.on_limit == "ask":
                answer, about = await self._ask(approval_id, kind, said, account), account
                if answer.approved:
                    continue
            degrades = budget is not None and budget.on_limit == "degrade"
            raise (ModelTooDearError if degrades else BudgetExceededError)(
                f"The run's budget has no room for a call of {self._call.model}: {said}",
                hint="Raise the budget, or have a person asked for more: on_limit='ask'.",
            )

    def _account_without_room(self, budget: Budget | None, excepted: str | None) -> str | None:
        """An account whose slices have no room for the call; `excepted` was allowed by a person."""
        spending = self._place.history.spending
        for account in spending.accounts(budget):
            if account != excepted and spending.shortfall(account, self._want) is not None:
                return account
        return None

    async def _ask_account(self, account: str) -> Mapping[str, Any] | None:
        """Ask for a slice that has room for the call, and wait; return the refusal, if that is the answer.

        One request of a run and an account is open at a time: what it brings may do for other calls, too.
        """
        place = self._place
        journal, spending = place.journal, place.history.spending
        slices = spending.slices
        await journal.learn_facts(DOMAIN)
        wanted = spending.shortfall(account, self._want)
        if account in slices.open or wanted is None:
            await journal.until(lambda: account not in slices.open)
            return None
        request_id = derived_id(place.run_id, "slice", account, str(slices.asked.get(account, 0)))
        requested = BudgetRequested(
            run_id=place.run_id,
            agent_type=journal.identity.agent.agent_type,
            request_id=request_id,
            account=account,
            wanted=wanted,
        )
        place.stage_to(requested, FactTopic(DOMAIN, account), key=request_id)
        await journal.until(lambda: not slices.awaits(request_id))
        return slices.refused.get(request_id)

    def _exceeded(self, budget: Budget | None) -> str | None:
        return self._place.history.spending.exceeded(self._want, budget, age_ms(self._place))

    def _said(self, kind: str, budget: Budget | None) -> str:
        spending = self._place.history.spending
        limit = spending.limit(kind, budget) or 0
        if kind == "wall_ms":
            return f"it has run for {age_ms(self._place) / 1000:.1f} s of {limit / 1000:g} s."
        wanted = getattr(self._want, kind)
        if wanted is None:
            return "its price is not known, and money is limited. Declare its `prices`."
        used, unit = spending.used(kind), "" if kind == "nano_usd" else f" {WORDS[kind]}"
        taken = f"{_amount(kind, used)} of {_amount(kind, limit)}{unit} are taken"
        return f"{taken}, and it may take {_amount(kind, wanted)}."

    async def _ask(self, approval_id: str, kind: str, reason: str, account: str | None) -> Answer:
        question = {"budget": WORDS.get(kind, kind), "model": self._call.model, "reason": reason}
        if account is not None:
            question["account"] = account
        answer = await Waits(self._place).ask(question, schema=ANSWER, approval_id=approval_id)
        return self._answered(approval_id, answer)

    def _answered(self, approval_id: str, answer: Answer) -> Answer:
        """Take over what an answer adds to the budget: what it says, or what this call may take."""
        if not answer.approved:
            return answer
        self._call.approval_id = approval_id
        said = answer.value if isinstance(answer.value, Mapping) else None
        want = self._want
        if said is None:
            added = {"nano_usd": want.nano_usd or 0, "tokens": want.tokens, "calls": want.calls}
        else:
            added = {
                "nano_usd": round(said.get("usd", 0) * NANO),
                "tokens": said.get("tokens", 0),
                "calls": said.get("calls", 0),
                "wall_ms": round(said.get("seconds", 0) * 1000),
            }
        self._call.added = {name: amount for name, amount in added.items() if amount}
        return answer


def _amount(kind: str, amount: int) -> str:
    return f"${amount / NANO:.6f}" if kind == "nano_usd" else f"{amount:,}"
