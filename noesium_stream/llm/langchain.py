"""LLM client for any provider that LangChain supports, through `init_chat_model`."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import ValidationError

from noesium_stream.config import VARIABLES, llm_config_problem
from noesium_stream.errors import ConfigError, brief
from noesium_stream.kernel.modes import ModelParameters
from noesium_stream.observability import llm_tokens_used
from noesium_stream.redaction import hide_secrets, without

_SETTING: Final = "agent.llm_config"


class LangChainLLM:
    """A LangChain chat model, by default at temperature 0.

    Args:
        model: `provider:name`.
        temperature: passed to the provider; None passes none, which STRICT mode refuses.
        seed: passed to the provider; None passes none, which STRICT mode refuses.
        version: the provider's version of the model, for the event; STRICT mode requires it. The version that
            the provider reports is in the answer.
        more: passed to the provider's client unchanged and, without secrets, written to the event.

    Raises:
        ConfigError: the extra is not installed, the provider or model is not known, or the provider's client
            does not accept a setting.
    """

    def __init__(
        self,
        model: str,
        *,
        temperature: float | None = 0,
        seed: int | None = None,
        version: str | None = None,
        **more: Any,
    ) -> None:
        try:
            models = importlib.import_module("langchain.chat_models")
        except ImportError as error:
            raise ConfigError(
                f"The model {model} needs LangChain, which is not installed.",
                hint="pip install 'noesium-stream[llm]' and the provider's package, e.g. langchain-openai.",
            ) from error
        given = {} if temperature is None else {"temperature": temperature}
        if seed is not None:
            given["seed"] = seed
        try:
            self._chat: Any = models.init_chat_model(model, **given, **more)
        except Exception as error:  # each provider's client has its own error types
            raise ConfigError(
                f"The model {model} cannot be used: {_reason(error, more)}",
                hint="Give it as PROVIDER:NAME, install the provider's package, and see "
                f"{_SETTING} ({VARIABLES[_SETTING]}).",
            ) from error
        known = _names_of(type(self._chat))
        if known is not None:
            chosen = [name for name, value in given.items() if name != "temperature" or value != 0]
            _refuse_unknown(model, type(self._chat).__name__, known, [*chosen, *more])
            if "temperature" not in known:
                temperature = None  # it was not passed on
        self._parameters = ModelParameters(model, version, temperature, seed, _recordable(more))

    @classmethod
    def configured(cls, model: str, settings: Mapping[str, Any]) -> Self:
        """The model with an agent's `llm_config` (see `AgentConfig`).

        Raises:
            ConfigError: as the class; or the value of a setting is not allowed.
        """
        problem = llm_config_problem(settings)
        if problem is not None:
            raise ConfigError(
                f"{_SETTING} of the model {model}: {problem}.", hint=f"See {VARIABLES[_SETTING]}."
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

    async def generate(self, prompt: str, *, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """As `BaseLLMClient.generate`; `answered_by` is the model and version that the provider reports."""
        message = await self._chat.ainvoke(prompt)
        usage = getattr(message, "usage_metadata", None)
        if usage:
            llm_tokens_used.add(usage["total_tokens"], {"noesium.model": self.model})
        return {
            **self._parameters.sampling,
            "text": str(message.text),
            "tokens": usage["total_tokens"] if usage else None,
            "answered_by": _answered_by(getattr(message, "response_metadata", None) or {}),
        }


def _names_of(client: type[Any]) -> frozenset[str] | None:
    """The names of a client's settings; None if it does not declare them."""
    fields = getattr(client, "model_fields", None)
    if fields is None:
        return None
    return frozenset(fields) | {field.alias for field in fields.values() if field.alias}


def _refuse_unknown(model: str, client: str, known: frozenset[str], names: list[str]) -> None:
    """Refuse settings that a client does not know.

    A client drops them, or sends them to a provider that refuses every call.
    """
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    near = difflib.get_close_matches(unknown[0], sorted(known), 1)
    raise ConfigError(
        f"{_SETTING}: {client}, the client of the model {model}, takes no "
        f"{', '.join(repr(name) for name in unknown)}.",
        hint=(f"Did you mean {near[0]!r}? " if near else "")
        + f"It is set in {_SETTING} ({VARIABLES[_SETTING]})."
        + (
            " What the provider takes and its client has no name for goes into 'model_kwargs'."
            if "model_kwargs" in known
            else ""
        ),
    )


def _recordable(more: Mapping[str, Any]) -> dict[str, Any]:
    """Provider settings for the event: strings under names that look secret are removed."""
    found: dict[str, Any] = hide_secrets({name: _plain(value) for name, value in more.items()})
    # Only strings can be secrets: `max_tokens` is a number.
    return {
        name: more[name] if isinstance(more[name], bool | int | float) else value
        for name, value in found.items()
    }


def _plain(value: Any) -> Any:
    """A setting as JSON; a value that is not JSON is represented by its type."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | bool | int | float) else type(value).__name__


def _reason(error: Exception, settings: Mapping[str, Any]) -> str:
    """The message of a client's error without the given values: one may be a key."""
    if isinstance(error, ValidationError):
        parts = (f"{'.'.join(map(str, one['loc'])) or 'settings'}: {one['msg']}" for one in error.errors())
        return without("; ".join(parts), settings)
    return without(brief(error), settings)


def _answered_by(metadata: dict[str, Any]) -> dict[str, str]:
    known = ("model_name", "model", "model_version", "system_fingerprint")
    return {name: metadata[name] for name in known if isinstance(metadata.get(name), str)}
