"""Any provider that LangChain knows, through `init_chat_model`."""

from __future__ import annotations

import importlib
from typing import Any

from noesium_stream.errors import ConfigError


class LangChainLLM:
    """A LangChain chat model at temperature 0.

    Raises:
        ConfigError: the extra is not installed, or the provider or model is not known.
    """

    def __init__(self, model: str) -> None:
        try:
            models = importlib.import_module("langchain.chat_models")
        except ImportError as error:
            raise ConfigError(
                f"The model {model} needs LangChain, which is not installed.",
                hint="pip install 'noesium-stream[llm]' and the provider's package, e.g. langchain-openai.",
            ) from error
        try:
            self._chat: Any = models.init_chat_model(model, temperature=0)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"The model {model} cannot be used: {error}",
                hint="Give it as PROVIDER:NAME and install the provider's package.",
            ) from error
        self._model = model

    @property
    def model(self) -> str:
        """`provider:name`."""
        return self._model

    async def generate(self, prompt: str) -> dict[str, Any]:
        """See `BaseLLMClient.generate`."""
        message = await self._chat.ainvoke(prompt)
        usage = getattr(message, "usage_metadata", None)
        return {
            "text": str(message.text),
            "model": self._model,
            "temperature": 0,
            "tokens": usage["total_tokens"] if usage else None,
        }
