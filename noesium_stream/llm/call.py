"""One model call while it is made, and the events that tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeGuard

from noesium_stream import errors
from noesium_stream.errors import BudgetExceededError, ModelError, ModelTimeoutError, brief
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope_fields import MAX_INT
from noesium_stream.event.rules.slices import Want
from noesium_stream.event.standard import (
    ModelCompleted,
    ModelDenied,
    ModelFailed,
    ModelInvoked,
    ModelRepeated,
)
from noesium_stream.llm.usage import MAX_TOKENS, Usage, checked_usage, estimated_tokens

DEFAULT_OUTPUT_TOKENS: Final = 4_096
"""Tokens that are reserved for an answer whose length is not limited."""

_MAX_REASON: Final = 4_000
_NAMED: Final = 200
_NOT_BEGUN: Final = "NotBegun"


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a call may take of a budget until it has ended; `nano_usd` None: its price is not known."""

    tokens: int
    nano_usd: int | None


@dataclass(slots=True)
class ModelCall:
    """What is known of a call by now.

    Attributes:
        model: `provider:name`.
        run_id: the run that calls.
        prompt: as recorded.
        reserved: what it may take at most, by estimate.
        operation: `chat` or `embeddings`.
        approval_id: the question whose answer the call consumes.
        added: what that answer adds to the run's budget.
    """

    model: str
    run_id: str
    prompt: Any
    reserved: Reserved
    operation: Literal["chat", "embeddings"] = "chat"
    approval_id: str | None = None
    added: dict[str, int] | None = None
    _want: Want | None = None

    def usage_of(self, result: Any) -> Usage:
        """The tokens in a recorded result; an estimate where it has none, as of a client of one's own."""
        given = result if isinstance(result, Mapping) else {}
        claimed = given.get("usage")
        if isinstance(claimed, Mapping) and _is_usage(claimed):
            return Usage(
                claimed["input_tokens"],
                claimed["output_tokens"],
                claimed.get("cached_tokens"),
                bool(claimed.get("estimated")),
            )
        return checked_usage(None, self.prompt, given.get("text"))

    @property
    def want(self) -> Want:
        """What it takes of the budget; the same object for the same call."""
        if self._want is None:
            self._want = Want(self.reserved.tokens, self.reserved.nano_usd)
        return self._want

    # -- events, each a pure function of the call (see `kernel/step/told_effect.py`) -------------------

    def invoked(self, call_id: str) -> DomainEvent:
        """See `Telling.invoked`."""
        return ModelInvoked(
            call_id=call_id,
            run_id=self.run_id,
            model=self.model,
            operation=self.operation,
            reserved_tokens=self.reserved.tokens,
            reserved_nano_usd=self.reserved.nano_usd,
            approval_id=self.approval_id,
            added=self.added,
        )

    def repeated(self, call_id: str) -> DomainEvent:
        """The call is made again: nobody knows what became of the first one."""
        return ModelRepeated(
            call_id=call_id,
            run_id=self.run_id,
            model=self.model,
            reserved_tokens=self.reserved.tokens,
            reserved_nano_usd=self.reserved.nano_usd,
        )

    def denied(self, call_id: str, error: Exception) -> DomainEvent:
        """See `Telling.denied`."""
        return ModelDenied(
            call_id=call_id,
            run_id=self.run_id,
            model=self.model,
            kind=error.kind if isinstance(error, BudgetExceededError) else "error",
            reason=brief(error, _MAX_REASON),
        )

    def completed(self, call_id: str, result: Any, duration_ms: int) -> DomainEvent:
        """See `Telling.completed`."""
        given = result if isinstance(result, Mapping) else {}
        usage, cost = self.usage_of(given), given.get("cost_nano_usd")
        return ModelCompleted(
            call_id=call_id,
            run_id=self.run_id,
            model=self.model,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            estimated=usage.estimated,
            cost_nano_usd=cost if _is_whole(cost) else None,
            duration_ms=duration_ms,
            answered_by=_name_in(given.get("answered_by")),
            finish=str(given["finish"])[:_NAMED] if given.get("finish") else None,
            repeats=str(given["repeats"])[:_NAMED] if given.get("repeats") else None,
        )

    def failed(self, call_id: str, error_type: str, message: str, duration_ms: int) -> DomainEvent:
        """See `Telling.failed`."""
        return ModelFailed(
            call_id=call_id,
            run_id=self.run_id,
            model=self.model,
            error_type=error_type,
            error=message,
            charged=_may_have_charged(error_type),
            duration_ms=duration_ms,
        )

    def timed_out(self, call_id: str) -> DomainEvent:
        """See `Telling.timed_out`."""
        error = self.limit_error()
        return self.failed(call_id, type(error).__name__, str(error), 0)

    def limit_error(self) -> Exception:
        """See `Telling.limit_error`."""
        return ModelTimeoutError(f"{self.model} had not answered within the time limit of the call.")


def reservation(client: Any, prompt: Any, also: Any = None, *, output: bool = True) -> Reserved:
    """What a call may take at most, by a high estimate.

    Args:
        client: the model's client.
        prompt: as recorded.
        also: tools and schema, which are sent as well.
        output: whether the model writes anything.
    """
    asked = estimated_tokens(prompt) + (estimated_tokens(also) if also else 0)
    limit = getattr(client, "max_output_tokens", None)
    answer = (limit or DEFAULT_OUTPUT_TOKENS) if output else 0
    price = getattr(client, "price", None)
    if not getattr(client, "charges", True):
        return Reserved(asked + answer, 0)
    return Reserved(asked + answer, None if price is None else price(asked, answer))


def _may_have_charged(error_type: str) -> bool:
    if error_type == _NOT_BEGUN:
        return False
    found = getattr(errors, error_type, None)
    if isinstance(found, type) and issubclass(found, BudgetExceededError):
        return True  # it had begun before a crash, and there was no room to make it again
    if isinstance(found, type) and issubclass(found, ModelError):
        return found.charged
    return True


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT


def _is_usage(claimed: Mapping[str, Any]) -> bool:
    found = [claimed.get("input_tokens"), claimed.get("output_tokens")]
    if claimed.get("cached_tokens") is not None:
        found.append(claimed["cached_tokens"])
    return all(_is_whole(one) and one <= MAX_TOKENS for one in found)


def _name_in(answered_by: Any) -> str | None:
    """The model that the provider reports, and its version."""
    if not isinstance(answered_by, Mapping):
        return None
    names = [answered_by.get(name) for name in ("model_name", "model", "model_version", "system_fingerprint")]
    found = list(dict.fromkeys(name for name in names if isinstance(name, str) and name))
    return " ".join(found)[:_NAMED] or None
