"""Models of many providers through OpenRouter, which speaks OpenAI's protocol and says what a call costs."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from noesium_stream.llm.openai import OpenAILLM


class OpenRouterLLM(OpenAILLM):
    """A model by OpenRouter: `OpenRouterLLM("openrouter:openai/gpt-5-mini")`.

    The key is `api_key`, or OPENROUTER_API_KEY. The cost of a call is what OpenRouter reports.
    """

    address: ClassVar[str | None] = "https://openrouter.ai/api/v1"

    def _settings(self, given: dict[str, Any]) -> dict[str, Any]:
        found = super()._settings(given)
        found.setdefault("extra_body", {"usage": {"include": True}})
        key = os.environ.get("OPENROUTER_API_KEY")
        if key and "api_key" not in found:
            found["api_key"] = key
        return found
