"""Effects: what a node does outside, written before and after (law 5)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from noesium_stream.clock import derived_id
from noesium_stream.errors import NodeExecutionError, brief
from noesium_stream.event.json_value import to_json
from noesium_stream.event.standard import (
    EffectCompleted,
    EffectFailed,
    EffectOutcomeUnknown,
    EffectRequested,
    SideEffectClass,
)
from noesium_stream.kernel.place import Place


class Effects:
    """The effects of one step."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def perform(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        effect_class: SideEffectClass = SideEffectClass.EXTERNAL,
        timeout: timedelta | None = None,
        **kwargs: Any,
    ) -> Any:
        """See `Step.effect`."""
        arguments = to_json({"args": args, "kwargs": kwargs}, "arguments")
        base = self._place.call_id("effect", name, arguments)
        failures = 0
        while True:
            effect_id = derived_id(base, str(failures))
            outcome = self._place.history.outcomes.get(effect_id)
            if outcome is None:
                break
            if outcome.event_type == "effect.completed":
                return outcome.payload.get("result")
            if outcome.event_type == "effect.outcome.unknown":
                raise _unknown(name, effect_id, outcome.payload["reason"])
            failures += 1
            self._place.tried_again = True
        if effect_id in self._place.history.requested:
            await self._repeat(name, effect_id, effect_class)
        else:
            await self._intend(name, effect_id, base, effect_class, arguments)
        if _takes_key(function):
            kwargs["idempotency_key"] = effect_id
        return await self._perform(effect_id, effect_class, partial(function, *args, **kwargs), timeout)

    async def _intend(
        self, name: str, effect_id: str, fingerprint: str, effect_class: SideEffectClass, arguments: Any
    ) -> None:
        event = EffectRequested(
            run_id=self._place.run_id,
            effect_id=effect_id,
            name=name,
            effect_class=effect_class.value,
            fingerprint=fingerprint,
            idempotency_key=effect_id,
            arguments=arguments,
        )
        self._place.stage(event, self._place.entered.event_id, effect_id)
        await self._place.journal.commit()

    async def _repeat(self, name: str, effect_id: str, effect_class: SideEffectClass) -> None:
        if effect_class is not SideEffectClass.EXTERNAL:
            return
        reason = "the process died between the call and its record"
        self._place.stage(
            EffectOutcomeUnknown(run_id=self._place.run_id, effect_id=effect_id, reason=reason),
            self._place.history.requested[effect_id].event_id,
        )
        await self._place.journal.commit()
        raise _unknown(name, effect_id, reason)

    async def _perform(
        self,
        effect_id: str,
        effect_class: SideEffectClass,
        call: Callable[[], Any],
        timeout: timedelta | None,
    ) -> Any:
        cause = self._place.history.requested[effect_id].event_id
        begun = self._place.clock.monotonic()
        # What may have been done outside, and must not be done again: not plainly failed.
        perhaps = None
        limit = asyncio.timeout(timeout.total_seconds() if timeout else None)
        try:
            async with limit:
                value = await call() if inspect.iscoroutinefunction(call) else await asyncio.to_thread(call)
            perhaps = "it was done, and its result cannot be recorded"
            result = to_json(value, "result")
        except Exception as error:
            if limit.expired():
                perhaps = f"it had not ended after {timeout}"
            if perhaps is not None and effect_class is SideEffectClass.EXTERNAL:
                self._place.stage(
                    EffectOutcomeUnknown(run_id=self._place.run_id, effect_id=effect_id, reason=perhaps),
                    cause,
                )
            else:
                failed = EffectFailed(
                    run_id=self._place.run_id,
                    effect_id=effect_id,
                    error_type=type(error).__name__,
                    message=brief(error),
                    duration_ms=self._place.since(begun),
                )
                self._place.stage(failed, cause)
            await self._place.journal.commit()
            raise
        done = EffectCompleted(
            run_id=self._place.run_id,
            effect_id=effect_id,
            result=result,
            duration_ms=self._place.since(begun),
        )
        self._place.stage(done, cause)
        # On its way at once: the node may go on for hours, and only the record says that it was done.
        self._place.journal.flush()
        return result


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        return "idempotency_key" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False  # a builtin that does not tell its parameters


def _unknown(name: str, effect_id: str, reason: str) -> NodeExecutionError:
    return NodeExecutionError(
        f"The outcome of the effect {name} ({effect_id}) is unknown: {reason}, and it is not idempotent.",
        hint="It is not called again. Find out whether it was done; then start a new run (under another "
        "idempotency key) for what is left. Effects that may be repeated are declared as idempotent.",
    )
