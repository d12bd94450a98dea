"""The effects of one step, and how their functions are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from noesium_stream.durations import Duration, in_seconds
from noesium_stream.event.payload.value import to_json
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
from noesium_stream.kernel.step.effect import Effect
from noesium_stream.kernel.step.effect_call import in_thread
from noesium_stream.kernel.step.position import Place
from noesium_stream.kernel.strict.guard import exempt


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
            )
            try:
                activity = self._place.journal.activity
                return await effect.outcome(
                    lambda effect_id: invoke(function, args, kwargs, effect_id, activity)
                )
            finally:
                self._place.tried_again = self._place.tried_again or effect.passed_over


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
