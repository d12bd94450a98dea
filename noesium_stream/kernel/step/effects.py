"""The effects of one step, and how their functions are called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

from noesium_stream.durations import Duration, in_seconds
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.rules.model_calls import arguments_within
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.callable_reference import (
    Undo,
    check_callable,
    reference,
    require_declared,
    takes_key,
)
from noesium_stream.kernel.retry import Retries
from noesium_stream.kernel.run_context import current_run
from noesium_stream.kernel.state.typed_json import check_size, said_of
from noesium_stream.kernel.step.effect import Effect, as_it_is
from noesium_stream.kernel.step.effect_call import in_thread
from noesium_stream.kernel.step.position import Place
from noesium_stream.kernel.step.serving import serving_call
from noesium_stream.kernel.step.told_effect import Gate, Telling, Told, questions_of
from noesium_stream.kernel.strict.guard import exempt


class Effects:
    """The effects of one step.

    Args:
        place: the step.
        from_person: makes a result, in the form in which calls give it, of what a person says.
    """

    def __init__(self, place: Place, from_person: Callable[[Any], Any] = as_it_is) -> None:
        self._place = place
        self._from_person = from_person

    async def perform(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        effect_class: SideEffectClass = SideEffectClass.EXTERNAL,
        timeout: Duration | None = None,
        retries: Retries | None = None,
        compensate: Undo | None = None,
        **kwargs: Any,
    ) -> Any:
        """See `Step.effect`; here in every mode, also for what the package offers, such as models."""
        with exempt():
            with said_of(f"The effect {name}"):
                arguments = to_json({"args": args, "kwargs": kwargs}, "arguments")
            check_size(arguments, "arguments", f"The effect {name}")
            undo = None
            if compensate is not None and self._place.undoes is None:
                undo = reference(compensate, f"the effect {name}")
                check_callable(compensate, f"the effect {name}", None, *args, **kwargs)
                if not undo.startswith(".") or not isinstance(compensate, str):
                    _require_declared(undo, compensate, f"the effect {name}")
            base = self._place.call_id("effect", name, arguments)
            await self._place.before_call(base, f"a call of {name} with other arguments or at another place")
            effect = Effect(
                self._place,
                name,
                base,
                effect_class,
                arguments,
                None if timeout is None else timedelta(seconds=in_seconds(timeout, "timeout")),
                retries,
                undo,
                part_of=self._place.undoes,
                from_person=self._from_person,
            )
            try:
                activity = self._place.journal.activity
                return await effect.outcome(
                    lambda effect_id: invoke(function, args, kwargs, effect_id, activity)
                )
            finally:
                self._place.tried_again = self._place.tried_again or effect.passed_over

    async def perform_tool(
        self,
        name: str,
        identity: Any,
        call: Callable[[str], Awaitable[Any]],
        telling: Telling,
        make_gate: Callable[[Effect], Gate],
        *,
        effect_class: SideEffectClass,
        timeout: timedelta,
        retries: Retries | None = None,
    ) -> Any:
        """Make a tool call: an effect with events that tell of it, and a gate before it.

        Args:
            name: the tool's name, and the effect's.
            identity: what tells this call from others of the node, as JSON: its arguments.
            call: makes it; gets the call's id. Its arguments are those that the gate has set in the effect.
            telling: makes the events.
            make_gate: makes the gate of the effect.
            effect_class: what a second call does.
            timeout: its time limit.
            retries: how a failure is retried.

        Raises as `Step.tool`.
        """
        place = self._place
        with exempt():
            base = place.call_id("tool", name, identity)
            for approval_id in questions_of(place.history, base):
                place.note_call(approval_id)  # the gate repeats them, before the call
            await place.before_call(base, f"a call of {name} with other arguments or at another place")
            effect = Effect(place, name, base, effect_class, None, timeout, retries, part_of=place.undoes)
            effect.told = Told(place, telling, make_gate(effect))
            effect.from_person = self._from_person
            try:
                return await effect.outcome(call)
            finally:
                place.tried_again = place.tried_again or effect.passed_over

    async def perform_model(
        self,
        name: str,
        arguments: dict[str, Any],
        call: Callable[[str], Awaitable[Any]],
        telling: Telling,
        make_gate: Callable[[Effect], Gate],
        *,
        timeout: timedelta | None = None,
        retries: Retries | None = None,
    ) -> Any:
        """Make a model call: as `perform_tool`, of an effect that is safe to repeat.

        Args:
            name: the effect's name, `model:PROVIDER:NAME`.
            arguments: what tells this call from others of the node, as `perform` records it.
            call: makes it; gets the call's id.
            telling: makes the events.
            make_gate: makes the gate of the effect.
            timeout: its time limit.
            retries: how a failure is retried.

        Raises:
            RecordTooLargeError: the prompt is too large for a record.
            Exception: the error of `call`, or what the gate refused it with, after it is recorded.
        """
        place = self._place
        arguments = arguments_within(arguments, serving_call())
        with exempt():
            check_size(arguments, "arguments", f"The effect {name}")
            base = place.call_id("effect", name, arguments)
            for approval_id in questions_of(place.history, base):
                place.note_call(approval_id)
            await place.before_call(base, f"a call of {name} with other arguments or at another place")
            effect = Effect(
                place, name, base, SideEffectClass.PURE, arguments, timeout, retries, part_of=place.undoes
            )
            effect.told = Told(place, telling, make_gate(effect), "model")
            try:
                return await effect.outcome(call)
            finally:
                place.tried_again = place.tried_again or effect.passed_over


def _require_declared(undo: str, compensate: Undo, what: str) -> None:
    run = current_run()
    reaches = () if run is None else (run.reach,)
    require_declared(undo, getattr(compensate, "__self__", None), reaches, what)


async def invoke(
    function: Callable[..., Any],
    args: tuple[Any, ...] | list[Any],
    kwargs: dict[str, Any],
    effect_id: str,
    activity: Activity,
) -> Any:
    """Call a function, a sync one in a thread; with the idempotency key if it has that parameter."""
    if takes_key(function):
        kwargs = {**kwargs, "idempotency_key": effect_id}
    call = partial(function, *args, **kwargs)
    if inspect.iscoroutinefunction(call):
        return await call()
    value = await in_thread(call, activity)
    return await value if inspect.isawaitable(value) else value
