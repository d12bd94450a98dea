"""Models of any provider that LiteLLM supports, through `langchain-litellm`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from noesium_stream.llm.langchain import LangChainLLM, package_of
from noesium_stream.llm.openai import name_of


class LiteLLM(LangChainLLM):
    """A model by LiteLLM: `LiteLLM("litellm:anthropic/claude-sonnet-4-5")`, with LiteLLM's own names.

    Keys are where LiteLLM looks for them, such as ANTHROPIC_API_KEY.
    """

    def _make_chat(self, model: str, settings: dict[str, Any]) -> Any:
        # Without it the import fetches a list of prices from the network, for up to ten seconds.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        package = package_of("langchain_litellm", model, "litellm", "langchain-litellm")
        # `max_retries` is of LangChain's wrapper; LiteLLM and the client below it repeat calls, too.
        found: dict[str, Any] = {"max_retries": 0, **settings}
        found["model_kwargs"] = {"num_retries": 0, "max_retries": 0, **found.get("model_kwargs", {})}
        return package.ChatLiteLLM(model=name_of(model), **found)

    def _make_embeddings(self, model: str, settings: dict[str, Any]) -> Any:
        package = package_of("langchain_litellm", model, "litellm", "langchain-litellm")
        given = {name: value for name, value in settings.items() if name in ("api_key", "api_base")}
        return package.LiteLLMEmbeddings(model=name_of(model), **given)

    def _with_schema(self, prompt: Any, schema: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        named = {"name": "answer", "schema": dict(schema)}
        return prompt, {"response_format": {"type": "json_schema", "json_schema": named}}
