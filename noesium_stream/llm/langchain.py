"""Any provider that LangChain knows, through `init_chat_model`."""

from __future__ import annotations

import importlib
from typing import Any

from noesium_stream.errors import ConfigError
from noesium_stream.kernel.modes import ModelParameters


class LangChainLLM:
    """A LangChain chat model, at temperature 0 unless told otherwise.

    Args:
        model: `provider:name`.
        temperature: given to the provider.
        seed: given to the provider; None gives none, which STRICT mode refuses.
        version: the provider's version of the model, for the event; STRICT mode requires it. What the
            provider itself says of its version is in the answer.
        more: goes to the provider as it is.

    Raises:
        ConfigError: the extra is not installed, or the provider or model is not known.
    """

    def __init__(
        self,
        model: str,
        *,
        temperature: float = 0,
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
        if seed is not None:
            more["seed"] = seed
        try:
            self._chat: Any = models.init_chat_model(model, temperature=temperature, **more)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"The model {model} cannot be used: {error}",
                hint="Give it as PROVIDER:NAME and install the provider's package.",
            ) from error
        self._parameters = ModelParameters(model, version, temperature, seed)

    @property
    def model(self) -> str:
        """`provider:name`."""
        return str(self._parameters.model)

    @property
    def parameters(self) -> ModelParameters:
        """See `BaseLLMClient.parameters`."""
        return self._parameters

    async def generate(self, prompt: str, *, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """See `BaseLLMClient.generate`; `answered_by` is what the provider says of model and version."""
        message = await self._chat.ainvoke(prompt)
        usage = getattr(message, "usage_metadata", None)
        return {
            **self._parameters.to_dict(),
            "text": str(message.text),
            "tokens": usage["total_tokens"] if usage else None,
            "answered_by": _answered_by(getattr(message, "response_metadata", None) or {}),
        }


def _answered_by(metadata: dict[str, Any]) -> dict[str, str]:
    known = ("model_name", "model", "model_version", "system_fingerprint")
    return {name: metadata[name] for name in known if isinstance(metadata.get(name), str)}
