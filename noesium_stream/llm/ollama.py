"""Models of Ollama, through `langchain-ollama`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noesium_stream.llm.langchain import LangChainLLM, package_of
from noesium_stream.llm.openai import name_of

_OF_VECTORS: Final = ("base_url", "client_kwargs", "async_client_kwargs", "num_ctx", "keep_alive")


class OllamaLLM(LangChainLLM):
    """A model of Ollama: `OllamaLLM("ollama:llama3.2")`.

    The server is at `base_url`, or OLLAMA_HOST, or http://127.0.0.1:11434. Calls cost nothing.
    """

    charges = False
    ends_with_reason = True

    def _make_chat(self, model: str, settings: dict[str, Any]) -> Any:
        package = package_of("langchain_ollama", model, "ollama", "langchain-ollama")
        return package.ChatOllama(model=name_of(model), **settings)

    def _make_embeddings(self, model: str, settings: dict[str, Any]) -> Any:
        package = package_of("langchain_ollama", model, "ollama", "langchain-ollama")
        given = {name: value for name, value in settings.items() if name in _OF_VECTORS}
        return package.OllamaEmbeddings(model=name_of(model), **given)

    def _with_schema(self, prompt: Any, schema: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        return prompt, {"format": dict(schema)}
