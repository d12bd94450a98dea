"""OpenAI's models, and servers that speak its protocol, through `langchain-openai`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from noesium_stream.llm.langchain import LangChainLLM, package_of, unshared

_OF_VECTORS: Final = ("base_url", "api_key", "organization", "timeout", "default_headers", "dimensions")


class OpenAILLM(LangChainLLM):
    """A chat model of OpenAI: `OpenAILLM("openai:gpt-5-mini")`.

    `base_url` is for a server that speaks the same protocol. The client repeats nothing by itself: each
    repetition is on the log. Everything else is as in `LangChainLLM`.
    """

    ends_with_reason = True
    address: ClassVar[str | None] = None
    """Where it is if no `base_url` is given; None: where the client's package says."""
    fixed: ClassVar[Mapping[str, Any]] = {}
    """Further settings, unless they are given."""

    def _make_chat(self, model: str, settings: dict[str, Any]) -> Any:
        package = package_of("langchain_openai", model, "openai", "langchain-openai")
        return package.ChatOpenAI(model=name_of(model), **unshared(self._settings(settings)))

    def _make_embeddings(self, model: str, settings: dict[str, Any]) -> Any:
        package = package_of("langchain_openai", model, "openai", "langchain-openai")
        given = {name: value for name, value in self._settings(settings).items() if name in _OF_VECTORS}
        # Without the check of the length nothing is fetched to count tokens, and texts go as texts.
        return package.OpenAIEmbeddings(
            model=name_of(model), check_embedding_ctx_length=False, max_retries=0, **given
        )

    def _settings(self, given: dict[str, Any]) -> dict[str, Any]:
        found = {"max_retries": 0, "stream_usage": True, **self.fixed, **given}
        if self.address is not None:
            found.setdefault("base_url", self.address)
        return found

    def _with_schema(self, prompt: Any, schema: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        named = {"name": "answer", "schema": dict(schema)}
        return prompt, {"response_format": {"type": "json_schema", "json_schema": named}}


def name_of(model: str) -> str:
    """The model's name without its provider."""
    provider, colon, name = model.partition(":")
    return name if colon else provider
