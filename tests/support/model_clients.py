"""One client of each provider that has a class here, for the server of `model_server`."""

from __future__ import annotations

from typing import Any, Final

from noesium_stream.llm import LiteLLM, LlamaCppLLM, OllamaLLM, OpenAILLM, OpenRouterLLM
from tests.support.model_server import ModelServer

CLIENTS: Final = ("openai", "openrouter", "llamacpp", "ollama", "litellm")


def client_of(provider: str, server: ModelServer, **more: Any) -> Any:
    """The provider's client; `timeout` is in seconds."""
    if provider == "ollama":
        limit = {"client_kwargs": {"timeout": more.pop("timeout")}} if "timeout" in more else {}
        return OllamaLLM("ollama:llama3.2", base_url=server.url, **limit, **more)
    if provider == "openrouter":
        return OpenRouterLLM("openrouter:openai/gpt-4o-mini", base_url=server.openai, api_key="k", **more)
    if provider == "llamacpp":
        return LlamaCppLLM("llamacpp:qwen3", base_url=server.openai, **more)
    if provider == "litellm":
        limit = {"request_timeout": more.pop("timeout")} if "timeout" in more else {}
        where = {"api_base": server.openai, "api_key": "k"}
        return LiteLLM("litellm:openai/gpt-4o-mini", **where, **limit, **more)
    return OpenAILLM("openai:gpt-4o-mini", base_url=server.openai, api_key="k", **more)
