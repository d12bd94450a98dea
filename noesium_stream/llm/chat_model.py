"""A chat model of LangChain whose calls are effects of the step that makes them.

`create_agent`, and any other code that wants a model of LangChain, takes it as it takes the model behind it.
An answer is on the log before the node ends: after a crash the model is not asked again, and a replay reads
what it said. The event names the conversation by its hash: the state has its text already.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from langchain_core.tools import BaseTool

from noesium_stream.errors import ConfigError
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.kernel.error_classes import declare_errors
from noesium_stream.kernel.modes import ModelParameters, check_model_parameters, current_mode
from noesium_stream.kernel.state.typed_json import decode, encode
from noesium_stream.kernel.step.effects import Effects
from noesium_stream.kernel.step.position import Place, enclosing_step
from noesium_stream.kernel.step.serving import serving_call
from noesium_stream.kernel.step.step import current_step
from noesium_stream.llm.call import ModelCall, reservation
from noesium_stream.llm.gate import ModelGate
from noesium_stream.llm.langchain import OUTPUT_LIMITS
from noesium_stream.llm.message import record_of
from noesium_stream.llm.pricing import Prices, check_prices, price_of
from noesium_stream.llm.usage import checked_usage
from noesium_stream.observability import llm_tokens_used

_UNTOLD: Final[RunnableConfig] = {"callbacks": []}
"""Listeners hear of the call once, from the model in front."""


def journaled_model(model: BaseChatModel, *, prices: Prices | None = None) -> JournaledChatModel:
    """The model for nodes: each answer is recorded, and a replay reads it instead of asking again.

        graph = create_agent(journaled_model(ChatOpenAI(model="gpt-5")), tools)

    Outside a node it asks the model as usual.

    Args:
        model: a chat model of LangChain.
        prices: dollars per million tokens, as of `LangChainLLM`; None: those that are known.

    Raises:
        ConfigError: the prices are not valid.
    """
    if isinstance(model, JournaledChatModel):
        return model
    declare_errors((type(model)._generate, type(model)._agenerate))
    return JournaledChatModel(
        behind=model, prices=check_prices(prices), profile=getattr(model, "profile", None)
    )


class JournaledChatModel(BaseChatModel):
    """See `journaled_model`; `behind` is the model."""

    behind: BaseChatModel
    prices: Any = None
    cache: Any = False
    """An answer is taken from the log, never from a cache that another process may not have."""

    @property
    def _llm_type(self) -> str:
        return self.behind._llm_type

    @property
    def model_name(self) -> str:
        """The name of the model behind it."""
        return str(self.parameters.model).rpartition(":")[2]

    @property
    def parameters(self) -> ModelParameters:
        """The sampling settings, as far as the model tells them."""
        said = self.behind._get_ls_params()
        name = said.get("ls_model_name") or type(self.behind).__name__
        seed = getattr(self.behind, "seed", None)
        return ModelParameters(
            f"{said.get('ls_provider') or self._llm_type}:{name}",
            temperature=said.get("ls_temperature"),
            seed=seed if isinstance(seed, int) else None,
        )

    @property
    def max_output_tokens(self) -> int | None:
        """The most tokens of an answer, if the model has such a limit."""
        found = (getattr(self.behind, name, None) for name in OUTPUT_LIMITS)
        return next((one for one in found if isinstance(one, int) and one > 0), None)

    def price(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int | None:
        """As `ChatClient.price`."""
        name = str(self.parameters.model)
        return price_of(name, input_tokens, output_tokens, cached_tokens, self.prices)

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[Any, Any]:
        """As the model behind it binds tools.

        Raises:
            ConfigError: it does so by more than arguments of its calls.
        """
        bound = self.behind.bind_tools(tools, **kwargs)
        if not isinstance(bound, RunnableBinding) or bound.bound is not self.behind:
            raise ConfigError(
                f"{type(self.behind).__name__} binds tools in a way that cannot be recorded.",
                hint="Give a chat model of LangChain itself, not one that wraps another.",
            )
        return self.bind(**bound.kwargs).with_config(bound.config)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if enclosing_step() is not None:
            return current_step().run_sync(self._agenerate(messages, stop, None, **kwargs))
        return _result(self.behind.invoke(messages, _UNTOLD, stop=stop, **kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        async def ask() -> BaseMessage:
            return await self.behind.ainvoke(messages, _UNTOLD, stop=stop, **kwargs)

        place = enclosing_step()
        if place is None:
            return _result(await ask())
        return _result(await self._recorded(place, ask, messages, {**kwargs, "stop": stop}))

    async def _recorded(
        self, place: Place, ask: Callable[[], Any], messages: list[BaseMessage], options: dict[str, Any]
    ) -> BaseMessage:
        parameters = self.parameters
        check_model_parameters(parameters, current_mode())
        prompt = [encode(message, "messages") for message in messages]
        offered = json.loads(json.dumps(options, default=_named, sort_keys=True))
        call = ModelCall(str(parameters.model), place.run_id, prompt, reservation(self, prompt, offered))
        arguments = {
            "args": [],
            "kwargs": {
                "parameters": parameters.to_dict(),
                "messages": len(messages),
                "messages_sha256": _hash(prompt if serving_call() is None else _without_ids(prompt)),
                "options_sha256": _hash(offered),
            },
        }

        async def answer(call_id: str) -> Any:
            return self._record(await ask(), prompt)

        gate = ModelGate(place, call)
        try:
            said = await Effects(place).perform_model(
                f"model:{parameters.model}", arguments, answer, call, lambda effect: gate
            )
        finally:
            gate.forget()
        message: BaseMessage = decode(said["message"])
        return message

    def _record(self, message: BaseMessage, prompt: Any) -> dict[str, Any]:
        found = record_of(message)
        wrote = found["text"] + json.dumps(found.get("tool_calls", ""))
        usage = checked_usage(found["claimed"], prompt, wrote, self.max_output_tokens)
        llm_tokens_used.add(usage.total, {"noesium.model": str(self.parameters.model)})
        cost = found.get("reported_cost")
        if cost is None:
            cost = self.price(usage.input_tokens, usage.output_tokens, usage.cached_tokens or 0)
        return {
            "message": encode(message, "answer"),
            "usage": usage.to_dict(),
            "cost_nano_usd": cost,
            "finish": found.get("finish"),
            "answered_by": found["answered_by"],
        }


def _result(message: BaseMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def _without_ids(prompt: list[Any]) -> list[Any]:
    """Messages without their ids: LangGraph gives random ones to those of a graph that a tool runs."""
    return [{**one, "value": {**one["value"], "id": None}} for one in prompt]


def _hash(value: Any) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _named(value: Any) -> str:
    """An option that has no JSON form, by its name: the same text in every process."""
    return getattr(value, "__qualname__", type(value).__qualname__)
