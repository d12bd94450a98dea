"""Prepared answers of models, effects and other agents."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.errors import RehearsalError, ScriptEndedError
from noesium_stream.llm import ModelParameters

Answers = Iterable[Any] | Callable[..., Any]
"""One answer after another (an exception is raised), or a function of the arguments."""

_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Call:
    """A received call: positional and named arguments, and the key that identifies repeats."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    key: str | None = None


class Script:
    """Gives the next answer to each call and records the calls.

    A call repeated under its key (after a crash, before its result was on the log) gets the same answer
    again, like from a service that honours idempotency keys.

    Args:
        name: the scripted item, for messages: `the effect refund`.
        answers: a list or another iterable, used up in order; or a function of the call's arguments, sync or
            async. An exception (as an answer, or raised by the function) is the failure of that call.

    Raises:
        RehearsalError: `answers` is a string, which would be split into letters.
    """

    def __init__(self, name: str, answers: Answers) -> None:
        if isinstance(answers, str | bytes):
            raise RehearsalError(
                f"The script of {name} is one text: {answers!r}.", hint="Give a list of answers."
            )
        self._name = name
        self._function = answers if callable(answers) else None
        self._answers: Iterator[Any] = iter(()) if callable(answers) else iter(answers)
        self._given: dict[str, Any] = {}
        self._used = 0
        self.calls: list[Call] = []

    async def answer(self, call: Call) -> Any:
        """The answer to the next call.

        Raises:
            ScriptEndedError: there are more calls than answers.
            Exception: the scripted exception, or an error of the function.
        """
        self.calls.append(call)
        if call.key is None or call.key not in self._given:
            found = await self._next(call)
            if call.key is not None:
                self._given[call.key] = found
        else:
            found = self._given[call.key]
        if isinstance(found, BaseException):
            raise found
        return found

    async def _next(self, call: Call) -> Any:
        if self._function is not None:
            try:
                found = self._function(*call.args, **call.kwargs)
                return await found if inspect.isawaitable(found) else found
            except Exception as error:
                return error
        try:
            found = next(self._answers)
        except StopIteration:
            said = ", ".join(
                [repr(arg) for arg in call.args] + [f"{k}={v!r}" for k, v in call.kwargs.items()]
            )
            return ScriptEndedError(
                f"The script of {self._name} has {self._used} answers, and this is call {self._used + 1}: "
                f"{said[:_SHOWN]}",
                hint="Add an answer, or find out why it was called once more than expected.",
            )
        self._used += 1
        return found


class ScriptedModel:
    """A language model with prepared answers (a `BaseLLMClient`); records the prompts.

    Pass it to a `Rehearsal`, or to nodes directly: `JournaledLLM(ScriptedModel([...]))`.

    Args:
        answers: texts in order (an exception is raised), or a function of the prompt.
        model: the model name for events.
    """

    def __init__(self, answers: Answers, *, model: str = "scripted:model") -> None:
        self._script = Script(f"the model {model}", answers)
        self._model = model

    @property
    def model(self) -> str:
        """`provider:name`."""
        return self._model

    @property
    def parameters(self) -> ModelParameters:
        """As `BaseLLMClient.parameters`: all are set, as STRICT mode requires."""
        return ModelParameters(self._model, version="scripted", temperature=0, seed=0)

    @property
    def prompts(self) -> list[str]:
        """The prompts in order, including repeats after a crash."""
        return [call.args[0] for call in self._script.calls]

    async def generate(
        self, prompt: str, *, parameters: dict[str, Any] | None = None, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """As `BaseLLMClient.generate`; a prompt repeated under its key gets the same answer again.

        Raises:
            ScriptEndedError: there are more calls than answers.
        """
        text = await self._script.answer(Call((prompt,), {}, idempotency_key))
        return {"text": str(text), "model": self._model, "temperature": 0, "tokens": len(str(text).split())}
