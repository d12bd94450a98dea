"""A provider's package with a scripted model in it, which LangChain finds by this module's name."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field, model_validator


class ChatOllama(BaseChatModel):
    """Says how it was asked to sample."""

    model: str
    temperature: float | None = None
    seed: int | None = None
    max_tokens: int | None = Field(None, alias="num_predict")
    api_key: str | None = None
    default_headers: dict[str, str] | None = None
    base_url: str | None = None
    stop: list[str] | None = None

    @model_validator(mode="after")
    def _open(self) -> ChatOllama:
        if self.base_url == "nowhere":
            raise RuntimeError("there is no server at nowhere")
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        said = f"{messages[-1].text} t={self.temperature} s={self.seed} n={self.max_tokens}"
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])
