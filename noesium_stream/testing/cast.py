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
        if self._model is not None and name.startswith(_MODEL):
            function = self._model.generate
        return _counted(function, self._real[name])

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
    """Route `Effects.perform`, which every effect and model call uses, through the current cast.

    The last cast that leaves restores the original.
    """
    global _on_stage, _original
    if _on_stage == 0:
        _original = Effects.perform
        setattr(Effects, "perform", _perform)  # noqa: B010 - mypy knows that it is a method
    _on_stage += 1
    try:
        yield
    finally:
        _on_stage -= 1
        if _on_stage == 0:
            setattr(Effects, "perform", _original)  # noqa: B010


_on_stage = 0
_original: Callable[..., Any] = Effects.perform


@functools.wraps(Effects.perform)
async def _perform(
    effects: Effects, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    cast = _CURRENT.get()
    if cast is not None:
        function = cast.stand_in(name, function)
    return await _original(effects, name, function, *args, **kwargs)
