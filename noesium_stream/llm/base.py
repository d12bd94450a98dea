"""Language models behind one small interface (RFC-1001 §5 `llm/`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from noesium_stream.kernel.modes import ModelParameters

Messages = Sequence[Any]
"""A conversation: messages as OpenAI has them, `{"role": "user", "content": "…"}`, or LangChain's."""

Write = Callable[[str], Awaitable[None]]
"""Takes a piece of an answer's text."""


class BaseLLMClient(Protocol):
    """A chat model."""

    @property
    def model(self) -> str:
        """`provider:name`."""

    @property
    def parameters(self) -> ModelParameters:
        """The sampling settings; None for settings that it does not fix."""

    async def generate(self, prompt: Any, *, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call the model outside any run; return `{"text", "model", "tokens"}` and more (see `ModelAnswer`).

        `parameters` are the client's own, as in the event. The prompt is a text, or a list of messages if the
        client takes these.
        """


@runtime_checkable
class ChatClient(Protocol):
    """A client that also takes tools and a schema, and can hand an answer over in pieces."""

    @property
    def model(self) -> str:
        """`provider:name`."""

    @property
    def parameters(self) -> ModelParameters:
        """As `BaseLLMClient.parameters`."""

    @property
    def max_output_tokens(self) -> int | None:
        """The most tokens of one answer; None: it is not limited."""

    def price(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int | None:
        """The price of a call in nano-dollars; None: it is not known."""

    async def generate(
        self,
        prompt: Any,
        *,
        parameters: dict[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        schema: Mapping[str, Any] | None = None,
        write: Write | None = None,
    ) -> dict[str, Any]:
        """As `BaseLLMClient.generate`.

        Args:
            prompt: a text, or messages as OpenAI has them.
            parameters: as in the event.
            tools: what the model may call, as OpenAI has them.
            schema: the JSON Schema of the answer.
            write: takes the answer's text in pieces, as it comes.
        """

    async def embed(self, texts: Sequence[str]) -> dict[str, Any]:
        """The texts' vectors: `{"vectors", "model", "usage"}`."""
