"""Models of llama.cpp, through its own server (`llama-server`), which speaks OpenAI's protocol.

Decision record: the alternative, a model within the worker's process, takes a compiler to install, blocks
the process while it answers, and is lost with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from noesium_stream.llm.openai import OpenAILLM


class LlamaCppLLM(OpenAILLM):
    """A model that `llama-server` serves: `LlamaCppLLM("llamacpp:qwen3")`.

    The server is at `base_url`, by default where `llama-server` listens: http://127.0.0.1:8080/v1. It takes
    no key unless one is given. Calls cost nothing.
    """

    charges = False
    address: ClassVar[str | None] = "http://127.0.0.1:8080/v1"
    fixed: ClassVar[Mapping[str, Any]] = {"api_key": "none"}
