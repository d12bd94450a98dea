"""Language models behind one small interface (RFC-1001 §5 `llm/`); every call is an effect of its step."""

from __future__ import annotations

from typing import Any, Protocol

from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step


class BaseLLMClient(Protocol):
    """A chat model."""

    @property
    def model(self) -> str:
        """`provider:name`."""

    async def generate(self, prompt: str) -> dict[str, Any]:
        """Ask the model outside any run; return `{"text", "model", "tokens"}`."""


class JournaledLLM:
    """A model as nodes use it: the answer is recorded, and a replay reads it instead of asking again."""

    def __init__(self, client: BaseLLMClient) -> None:
        self._client = client

    @property
    def model(self) -> str:
        """`provider:name`."""
        return self._client.model

    async def complete(self, prompt: str) -> str:
        """The model's answer to a prompt.

        Raises:
            KernelError: called outside a node.
            Exception: what the provider's client raises, after it is recorded.
        """
        answer = await current_step().effect(
            f"model:{self.model}", self._client.generate, prompt, effect_class=SideEffectClass.PURE
        )
        return str(answer["text"])
