"""Models for nodes: every call is an effect of its step, and a replay reads the recorded answer.

The call's event contains the sampling settings: `model`, `version`, `temperature`, `seed` (RFC-0003 §7), and
in `more` the provider's other settings. STRICT mode refuses a call without one of the four. Tokens and cost
are in the answer, and in `model.completed` beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import ConfigError, ModelAnswerError, ModelRefusalError
from noesium_stream.kernel.modes import check_model_parameters, current_mode
from noesium_stream.kernel.retry import Retries
from noesium_stream.kernel.step.effects import Effects, invoke
from noesium_stream.kernel.step.pieces import pieces_of
from noesium_stream.kernel.step.position import Place, this_step
from noesium_stream.llm.answer import (
    ModelAnswer,
    answer_of,
    messages_of,
    parsed,
    schema_of,
    tools_of,
    with_instruction,
)
from noesium_stream.llm.base import BaseLLMClient, ChatClient, Messages, Write
from noesium_stream.llm.cache import AnswerCache, key_of, through
from noesium_stream.llm.call import ModelCall, reservation
from noesium_stream.llm.gate import ModelGate
from noesium_stream.llm.tracking import TokenUsageTracker

TEXTS_PER_CALL: Final = 16
"""Texts whose vectors one effect records: a record has at most a megabyte."""

_MAX_QUOTED: Final = 20_000


class JournaledLLM:
    """A model for nodes: the answer is recorded, and a replay reads it instead of calling again.

    Args:
        client: the model.
        retries: how a failed call is repeated; a provider that says when it wants to be asked again is asked
            then. None: it is not.
        timeout: how long a call may take; None: as long as the client waits.
        tracker: is given the tokens of the calls that are made, and not of those that a replay reads.
        cache: answers that are given again to the same prompt, tools, schema and settings, at no cost.
    """

    def __init__(
        self,
        client: BaseLLMClient,
        *,
        retries: Retries | None = None,
        timeout: Duration | None = None,
        tracker: TokenUsageTracker | None = None,
        cache: AnswerCache | None = None,
    ) -> None:
        self._client = client
        self._cache = cache
        self._tracker = tracker
        self._retries = retries
        self._timeout = None if timeout is None else timedelta(seconds=in_seconds(timeout, "timeout"))

    @property
    def model(self) -> str:
        """`provider:name`."""
        return self._client.model

    @property
    def takes_tools(self) -> bool:
        """Whether it may be offered tools."""
        return isinstance(self._client, ChatClient)

    async def complete(self, prompt: str | Messages, *, stream: bool = False) -> str:
        """The text of the model's answer; arguments and errors are those of `ask`."""
        return (await self.ask(prompt, stream=stream)).text

    async def ask(
        self, prompt: str | Messages, *, tools: Sequence[Any] = (), stream: bool = False
    ) -> ModelAnswer:
        """The model's answer to a text, or to a conversation.

        Args:
            prompt: a text, or messages: as OpenAI has them, `{"role": "user", "content": "…"}`, or as
                LangChain has them.
            tools: what the model may ask to be called: functions, pydantic models, tools of LangChain, or
                OpenAI's form. It calls nothing by itself: see `ModelAnswer.tool_calls`.
            stream: whether its text is written in pieces while it comes, as by `Step.write`.

        Raises:
            KernelError: called outside a node.
            StrictModeError: in STRICT mode, the client does not fix seed, temperature, name and version.
            StateError: the prompt is none.
            BudgetExceededError: the run's budget has no room for the call.
            ModelRefusalError: the model refused to answer.
            ModelError: the call failed, after it is recorded.
            Exception: any error of a client of one's own, after it is recorded.
        """
        offered = tools_of(tools) if tools else None
        if offered is not None and not isinstance(self._client, ChatClient):
            raise ConfigError(f"The client of {self.model} takes no tools.", hint="See `ChatClient`.")
        answer = await self._asked(messages_of(prompt), offered, None, stream)
        if answer.refusal is not None:
            raise ModelRefusalError(f"{self.model} refused to answer: {answer.refusal[:500]}")
        return answer

    async def structured(self, prompt: str | Messages, schema: Any, *, repairs: int = 1) -> Any:
        """The model's answer as a value of a schema, which is checked.

        An answer that does not fit is sent back with what is wrong with it, at most `repairs` times. Each of
        these is a call of its own.

        Args:
            prompt: as in `ask`.
            schema: a pydantic model or any type (the result is one of these), or a JSON Schema.
            repairs: how often the model may try again.

        Raises:
            ModelAnswerError: the last answer does not fit either.
            Exception: as `ask`.
        """
        asked = messages_of(prompt)
        wanted: dict[str, Any] | None = schema_of(schema)
        if not isinstance(self._client, ChatClient):
            asked, wanted = with_instruction(asked, wanted), None
        for tries_left in range(repairs, -1, -1):
            answer = await self._asked(asked, None, wanted, stream=False)
            if answer.refusal is not None:
                raise ModelRefusalError(f"{self.model} refused to answer: {answer.refusal[:500]}")
            try:
                return parsed(answer.text, schema)
            except ModelAnswerError as error:
                if not tries_left:
                    raise
                asked = _to_repair(asked, answer.text, error)
        raise AssertionError("the last try returns or raises")

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """The texts' vectors, in order; errors are those of `ask`."""
        client = self._client
        if not isinstance(client, ChatClient):
            raise ConfigError(f"The client of {self.model} makes no vectors.", hint="See `ChatClient`.")
        found: list[list[float]] = []
        for first in range(0, len(texts), TEXTS_PER_CALL):
            part = list(texts[first : first + TEXTS_PER_CALL])
            place = self._place()
            call = ModelCall(
                self.model, place.run_id, part, reservation(client, part, output=False), "embeddings"
            )
            arguments = {"args": [part], "kwargs": {"parameters": client.parameters.to_dict()}}
            found += (await self._made(place, f"embed:{self.model}", arguments, call, client.embed))[
                "vectors"
            ]
        return found

    def _place(self) -> Place:
        """The step, if its mode allows the call."""
        place = this_step()
        check_model_parameters(self._client.parameters, current_mode())
        return place

    async def _asked(
        self, prompt: Any, tools: list[dict[str, Any]] | None, schema: dict[str, Any] | None, stream: bool
    ) -> ModelAnswer:
        place, client = self._place(), self._client
        given: dict[str, Any] = {"parameters": client.parameters.to_dict()}
        if tools:
            given["tools"] = tools
        if schema is not None:
            given["schema"] = schema
        call = ModelCall(
            self.model,
            place.run_id,
            prompt,
            reservation(client, prompt, [one for one in (tools, schema) if one]),
        )
        arguments = {"args": [prompt], "kwargs": given}
        write = pieces_of(place).write if stream else None
        result = await self._made(place, f"model:{self.model}", arguments, call, client.generate, write)
        return answer_of(result, self.model, call.usage_of(result))

    async def _made(
        self,
        place: Place,
        name: str,
        arguments: dict[str, Any],
        call: ModelCall,
        function: Any,
        write: Write | None = None,
    ) -> dict[str, Any]:
        """The result of a call, made or recorded."""
        chats, times = isinstance(self._client, ChatClient), 0

        async def make(call_id: str) -> Any:
            nonlocal times
            given = dict(arguments["kwargs"])
            if call.operation == "embeddings":
                return await function(*arguments["args"])
            if write is not None and times:
                await write(f"\n({self.model} begins again)\n")
            times += 1
            if write is not None and chats:
                given["write"] = write
            if chats:
                made = await function(*arguments["args"], **given)
            else:
                made = await invoke(function, arguments["args"], given, call_id, place.journal.activity)
            if self._tracker is not None:
                self._tracker.add(self.model, call.usage_of(made))
            if write is not None and not chats:
                await write(str(made["text"]))
            return made

        gate = ModelGate(place, call)
        try:
            result: dict[str, Any] = await Effects(place).perform_model(
                name,
                arguments,
                make if self._cache is None else through(self._cache, key_of(name, arguments), make, write),
                call,
                lambda effect: gate,
                timeout=self._timeout,
                retries=self._retries,
            )
        finally:
            gate.forget()
        return result


def _to_repair(prompt: Any, wrong: str, error: ModelAnswerError) -> list[dict[str, Any]]:
    """The conversation in which a model is told what is wrong with its answer."""
    asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    told = f"{error.message} Answer again, with the corrected JSON alone."
    return [
        *asked,
        {"role": "assistant", "content": wrong[:_MAX_QUOTED]},
        {"role": "user", "content": told},
    ]
