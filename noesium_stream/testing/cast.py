"""Who plays what: effects by name, from scripts or as they are; every call of one is counted."""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from noesium_stream.kernel import Step
from noesium_stream.llm import BaseLLMClient
from noesium_stream.testing.script import Call, Script

_MODEL: Final = "model:"

_CURRENT: ContextVar[Cast | None] = ContextVar("noesium_cast", default=None)


class Cast:
    """Scripts of effects, the model behind all `model:` effects, and what was called how often."""

    def __init__(self, effects: Mapping[str, Script], model: BaseLLMClient | None) -> None:
        self._effects = effects
        self._model = model
        self._real: defaultdict[str, list[Call]] = defaultdict(list)

    def calls(self, name: str) -> list[Call]:
        """The calls of an effect that were made, in order; not those that were read from the log."""
        script = self._effects.get(name)
        return script.calls if script is not None else self._real[name]

    def stand_in(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is called in place of `function`."""
        script = self._effects.get(name)
        if script is not None:
            return _scripted(script)
        if self._model is not None and name.startswith(_MODEL):
            function = self._model.generate
        return _counted(function, self._real[name])

    @contextmanager
    def on_stage(self) -> Generator[None]:
        """Play in every step of tasks that are started by this one from now on."""
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
    # The kernel looks at whether it is a coroutine function and at its parameters: both stay.
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
    """Let `Step.journaled`, which every effect and model call goes through, ask the current cast.

    Undone with the last one that leaves.
    """
    global _on_stage, _original
    if _on_stage == 0:
        _original = Step.journaled
        setattr(Step, "journaled", _journaled)  # noqa: B010 - mypy knows that it is a method
    _on_stage += 1
    try:
        yield
    finally:
        _on_stage -= 1
        if _on_stage == 0:
            setattr(Step, "journaled", _original)  # noqa: B010


_on_stage = 0
_original: Callable[..., Any] = Step.journaled


@functools.wraps(Step.journaled)
async def _journaled(step: Step, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    cast = _CURRENT.get()
    if cast is not None:
        function = cast.stand_in(name, function)
    return await _original(step, name, function, *args, **kwargs)
