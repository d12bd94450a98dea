"""The client of a model by its name, `PROVIDER:NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noesium_stream.llm.langchain import LangChainLLM
from noesium_stream.llm.litellm import LiteLLM
from noesium_stream.llm.llamacpp import LlamaCppLLM
from noesium_stream.llm.ollama import OllamaLLM
from noesium_stream.llm.openai import OpenAILLM
from noesium_stream.llm.openrouter import OpenRouterLLM

PROVIDERS: Final[Mapping[str, type[LangChainLLM]]] = {
    "litellm": LiteLLM,
    "llamacpp": LlamaCppLLM,
    "ollama": OllamaLLM,
    "openai": OpenAILLM,
    "openrouter": OpenRouterLLM,
}
"""The providers that have a file here; all others are those that `init_chat_model` of LangChain knows."""


def load_model(model: str, settings: Mapping[str, Any] | None = None) -> LangChainLLM:
    """The client of a model, with an agent's `llm_config`.

    Raises:
        ConfigError: as `LangChainLLM.configured`.
    """
    provider = model.partition(":")[0]
    return PROVIDERS.get(provider, LangChainLLM).configured(model, settings or {})
