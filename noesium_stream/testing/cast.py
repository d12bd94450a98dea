"""Scripts for effects by name; effects without a script are performed, and every call is counted."""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from noesium_stream.kernel.step.effects import Effects
from noesium_stream.llm import BaseLLMClient
from noesium_stream.testing.script import Call, Script

_MODEL: Final = "model:"

_CURRENT: ContextVar[Cast | None] = ContextVar("noesium_cast", default=None)


class Cast:
    """Scripts of effects, the model behind all `model:` effects, and a record of the calls."""

    def __init__(self, effects: Mapping[str, Script], model: BaseLLMClient | None) -> None:
        self._effects = effects
        self._model = model
        self._real: defaultdict[str, list[Call]] = defaultdict(list)

    def calls(self, name: str) -> list[Call]:
        """The executed calls of an effect, in order, without those that were read from the log."""
        script = self._effects.get(name)
        return script.calls if script is not None else self._real[name]

    def stand_in(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function to call in place of `function`."""
        script = self._effects.get(name)
        if script is not None:
            return _scripted(script)
        return _counted(function, self._real[name])

    def stand_in_for_model(
        self, name: str, arguments: Mapping[str, Any], call: Callable[[str], Any]
    ) -> Callable[[str], Any]:
        """What makes a model's call in place of `call`; it gets the call's id."""
        args, kwargs = tuple(arguments["args"]), dict(arguments["kwargs"])
        script, model = self._effects.get(name), self._model

        async def played(call_id: str) -> Any:
            if script is not None:
                return await script.answer(Call(args, kwargs, call_id))
            self._real[name].append(Call(args, kwargs, None))
            # A chat model of LangChain has told its prompt otherwise: it is asked itself.
            if model is not None and args and name.startswith(_MODEL):
                return await model.generate(*args, parameters=kwargs.get("parameters"))
            return await call(call_id)

        return played

    @contextmanager
    def on_stage(self) -> Generator[None]:
        """Apply to every step of tasks that the current task starts from now on."""
        token = _CURRENT.set(self)
        try:
            with _played():
                yield
        finally:
            _CURRENT.reset(token)


def _scripted(script: Script) -> Callable[..., Any]:
    async def scripted(*args: Any, idempotency_key: str, **kwargs: Any) -> Any:
        return await script.answer(Call(args, kwargs, idempotency_key))

    return scripted


def _counted(function: Callable[..., Any], calls: list[Call]) -> Callable[..., Any]:
    # The kernel inspects parameters and whether it is a coroutine function: keep both.
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def counted(*args: Any, **kwargs: Any) -> Any:
            calls.append(Call(args, kwargs, kwargs.get("idempotency_key")))
            return await function(*args, **kwargs)

        return counted

    @functools.wraps(function)
    def counted_in_thread(*args: Any, **kwargs: Any) -> Any:
        calls.append(Call(args, kwargs, kwargs.get("idempotency_key")))
        return function(*args, **kwargs)

    return counted_in_thread


@contextmanager
def _played() -> Generator[None]:
    """Route effects and model calls through the current cast; the last cast that leaves restores them."""
    global _on_stage
    if _on_stage == 0:
        for name, played in _PLAYED.items():
            setattr(Effects, name, played)
    _on_stage += 1
    try:
        yield
    finally:
        _on_stage -= 1
        if _on_stage == 0:
            for name, original in _ORIGINAL.items():
                setattr(Effects, name, original)


_on_stage = 0
_ORIGINAL: Final[dict[str, Callable[..., Any]]] = {
    "perform": Effects.perform,
    "perform_model": Effects.perform_model,
}


@functools.wraps(Effects.perform)
async def _perform(
    effects: Effects, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    cast = _CURRENT.get()
    if cast is not None:
        function = cast.stand_in(name, function)
    return await _ORIGINAL["perform"](effects, name, function, *args, **kwargs)


@functools.wraps(Effects.perform_model)
async def _perform_model(
    effects: Effects, name: str, arguments: Any, call: Callable[[str], Any], *args: Any, **kwargs: Any
) -> Any:
    cast = _CURRENT.get()
    if cast is not None:
        call = cast.stand_in_for_model(name, arguments, call)
    return await _ORIGINAL["perform_model"](effects, name, arguments, call, *args, **kwargs)


_PLAYED: Final[dict[str, Callable[..., Any]]] = {"perform": _perform, "perform_model": _perform_model}
