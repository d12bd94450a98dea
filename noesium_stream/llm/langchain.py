"""LLM client for any provider that LangChain supports, through `init_chat_model`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Final, Self

from noesium_stream.config import VARIABLES, llm_config_problem
from noesium_stream.errors import ConfigError, ModelAnswerError
from noesium_stream.kernel.modes import ModelParameters
from noesium_stream.llm.answer import with_instruction
from noesium_stream.llm.base import Write
from noesium_stream.llm.failures import as_config_error, as_model_error
from noesium_stream.llm.message import is_broken_off, record_of
from noesium_stream.llm.per_loop import PerLoop, close_connections, leave_open
from noesium_stream.llm.pricing import Prices, check_prices, price_of
from noesium_stream.llm.settings import SETTING, names_of, recordable, refuse_unknown
from noesium_stream.llm.usage import checked_usage
from noesium_stream.observability import llm_tokens_used

_OF_USER: Final = "http_async_client"
"""The setting with a user's own HTTP client, which is left alone; classes of `langchain_openai` have it."""
OUTPUT_LIMITS: Final = ("max_tokens", "max_completion_tokens", "num_predict", "max_output_tokens")


class LangChainLLM:
    """A LangChain chat model, by default at temperature 0.

    Args:
        model: `provider:name`.
        temperature: passed to the provider; None passes none, which STRICT mode refuses.
        seed: passed to the provider; None passes none, which STRICT mode refuses.
        version: the provider's version of the model, for the event; STRICT mode requires it. The version that
            the provider reports is in the answer.
        prices: dollars per million tokens, `{"input": 0.15, "output": 0.6}`, where they are not known by
            `genai-prices`.
        more: passed to the provider's client unchanged and, without secrets, written to the event.

    Class attributes:
        charges: whether its calls cost money; False for a model on the user's own machine.
        ends_with_reason: whether an answer in pieces, without a reason for its end, is one that broke off.

    Raises:
        ConfigError: the extra is not installed, the provider or model is not known, or the provider's client
            does not accept a setting.
    """

    charges: ClassVar[bool] = True
    ends_with_reason: ClassVar[bool] = False

    def __init__(
        self,
        model: str,
        *,
        temperature: float | None = 0,
        seed: int | None = None,
        version: str | None = None,
        prices: Prices | None = None,
        **more: Any,
    ) -> None:
        self._prices = check_prices(prices)
        given: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
        if seed is not None:
            given["seed"] = seed
        self._more = more
        hint = f"Give it as PROVIDER:NAME, install the provider's package, and see {SETTING} "

        def make_chat() -> Any:
            with as_config_error(f"The model {model} cannot be used", more, f"{hint}({VARIABLES[SETTING]})."):
                return self._make_chat(model, {**given, **more})

        chat = make_chat()
        known = names_of(type(chat))
        if known is not None:
            chosen = [name for name, value in given.items() if name != "temperature" or value != 0]
            refuse_unknown(model, type(chat).__name__, known, [*chosen, *more])
            if "temperature" not in known:
                temperature = None  # it was not passed on
        self._parameters = ModelParameters(model, version, temperature, seed, recordable(more))
        close = leave_open if more.get(_OF_USER) is not None else close_connections
        self._chats = PerLoop(make_chat, close, chat)
        self._vectors = PerLoop(self._made_vectors, close)

    def _make_chat(self, model: str, settings: dict[str, Any]) -> Any:
        """LangChain's client; any error of it says that the model cannot be used."""
        init = package_of("langchain.chat_models", model, "llm").init_chat_model
        chat = init(model, **settings)
        if _OF_USER not in (names_of(type(chat)) or ()):
            return chat
        return init(model, **unshared(settings))

    def _make_embeddings(self, model: str, settings: dict[str, Any]) -> Any:
        """LangChain's client for the vectors of texts."""
        return package_of("langchain.embeddings", model, "llm").init_embeddings(model, **settings)

    def _with_schema(self, prompt: Any, schema: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The prompt, and settings of the call, by which the answer gets this schema."""
        return with_instruction(prompt, schema), {}

    @classmethod
    def configured(cls, model: str, settings: Mapping[str, Any]) -> Self:
        """The model with an agent's `llm_config` (see `AgentConfig`).

        Raises:
            ConfigError: as the class; or the value of a setting is not allowed.
        """
        problem = llm_config_problem(settings)
        if problem is not None:
            raise ConfigError(
                f"{SETTING} of the model {model}: {problem}.", hint=f"See {VARIABLES[SETTING]}."
            )
        return cls(model, **settings)

    @property
    def model(self) -> str:
        """`provider:name`."""
        return str(self._parameters.model)

    @property
    def parameters(self) -> ModelParameters:
        """As `BaseLLMClient.parameters`."""
        return self._parameters

    @property
    def max_output_tokens(self) -> int | None:
        """As `ChatClient.max_output_tokens`."""
        found = [self._more[name] for name in OUTPUT_LIMITS if isinstance(self._more.get(name), int)]
        return found[0] if found and found[0] > 0 else None

    def price(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int | None:
        """As `ChatClient.price`."""
        return price_of(self.model, input_tokens, output_tokens, cached_tokens, self._prices)

    def _made_vectors(self) -> Any:
        with as_config_error(f"The model {self.model} makes no vectors of texts", self._more):
            return self._make_embeddings(self.model, dict(self._more))

    async def generate(
        self,
        prompt: Any,
        *,
        parameters: dict[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        schema: Mapping[str, Any] | None = None,
        write: Write | None = None,
    ) -> dict[str, Any]:
        """As `ChatClient.generate`; `answered_by` is the model and version that the provider reports.

        Raises:
            ModelError: the class of the failure.
        """
        settings: dict[str, Any] = {}
        asked = prompt
        if schema is not None:
            asked, settings = self._with_schema(prompt, schema)
        chat = await self._chats.get()
        if tools:
            chat = chat.bind_tools(list(tools))
        if write is None:
            with as_model_error(self.model, self._more):
                message = await chat.ainvoke(asked, **settings)
        else:
            message = await self._in_pieces(chat, asked, settings, write)
        if write is not None and self.ends_with_reason and is_broken_off(message):
            raise ModelAnswerError(f"The answer of {self.model} broke off: it has no reason for its end.")
        return self._recorded(message, asked)

    async def _in_pieces(self, chat: Any, prompt: Any, settings: dict[str, Any], write: Write) -> Any:
        """The whole message of an answer whose text is handed over in pieces.

        Errors of `write` are its own, and no failures of the model.
        """
        whole: Any = None
        async with aclosing(chat.astream(prompt, **settings)) as pieces:
            while True:
                with as_model_error(self.model, self._more):
                    piece = await anext(pieces, None)
                if piece is None:
                    break
                whole = piece if whole is None else whole + piece
                text = str(piece.text)
                if text:
                    await write(text)
        if whole is None:
            raise ModelAnswerError(f"{self.model} gave no answer at all.")
        return whole

    def _recorded(self, message: Any, asked: Any) -> dict[str, Any]:
        found = record_of(message)
        reported = found.pop("reported_cost", None)
        wrote = found["text"] + (json.dumps(found["tool_calls"]) if "tool_calls" in found else "")
        wrote += found.get("refusal", "")
        usage = checked_usage(found.pop("claimed"), asked, wrote, self.max_output_tokens)
        llm_tokens_used.add(usage.total, {"noesium.model": self.model})
        cost = reported
        if cost is None:
            cost = self.price(usage.input_tokens, usage.output_tokens, usage.cached_tokens or 0)
        return {
            **self._parameters.sampling,
            **found,
            "tokens": usage.total,
            "usage": usage.to_dict(),
            "cost_nano_usd": cost,
        }

    async def embed(self, texts: Sequence[str]) -> dict[str, Any]:
        """As `ChatClient.embed`.

        Raises:
            ConfigError: the provider has no embeddings that LangChain knows.
            ModelError: the class of the failure.
        """
        client = await self._vectors.get()
        with as_model_error(self.model, self._more):
            vectors = await client.aembed_documents(list(texts))
        if len(vectors) != len(texts):
            raise ModelAnswerError(f"{self.model} gave {len(vectors)} vectors for {len(texts)} texts.")
        usage = checked_usage(None, list(texts), "", 1)
        return {
            **self._parameters.sampling,
            "vectors": [[float(number) for number in vector] for vector in vectors],
            "tokens": usage.input_tokens,
            "usage": {**usage.to_dict(), "output_tokens": 0},
            "cost_nano_usd": self.price(usage.input_tokens, 0),
        }


def unshared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by which a class of `langchain_openai` makes connections of its own.

    It takes them from a cache of the process unless `timeout` has no hash, as OpenAI's `Timeout`.
    """
    limits = [name for name in ("timeout", "request_timeout") if settings.get(name) is not None]
    given = settings[limits[0]] if limits else None
    if given is not None and not isinstance(given, int | float | tuple | list):
        return dict(settings)
    made = importlib.import_module("openai").Timeout(tuple(given) if isinstance(given, list) else given)
    return {**settings, limits[0] if limits else "timeout": made}


def package_of(module: str, model: str, extra: str, package: str | None = None) -> Any:
    """A module of LangChain.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = package or "LangChain"
        also = "" if package else " and the provider's package, e.g. langchain-openai"
        raise ConfigError(
            f"The model {model} needs {missing}, which is not installed.",
            hint=f"pip install 'noesium-stream[{extra}]'{also}.",
        ) from error
