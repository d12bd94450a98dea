"""Language models."""

from typing import TYPE_CHECKING

from noesium_stream.exports import exports
from noesium_stream.kernel.modes import ModelParameters
from noesium_stream.llm.answer import AskedTool, ModelAnswer
from noesium_stream.llm.base import BaseLLMClient, ChatClient
from noesium_stream.llm.cache import AnswerCache, CachedAnswer, MemoryCache
from noesium_stream.llm.journaled import JournaledLLM
from noesium_stream.llm.langchain import LangChainLLM
from noesium_stream.llm.litellm import LiteLLM
from noesium_stream.llm.llamacpp import LlamaCppLLM
from noesium_stream.llm.load import load_model
from noesium_stream.llm.ollama import OllamaLLM
from noesium_stream.llm.openai import OpenAILLM
from noesium_stream.llm.openrouter import OpenRouterLLM
from noesium_stream.llm.routing import ModelRouter, Route
from noesium_stream.llm.tracking import NodeLoggingCallback, TokenUsageCallback, TokenUsageTracker
from noesium_stream.llm.usage import Usage

if TYPE_CHECKING:
    from noesium_stream.llm.chat_model import JournaledChatModel, journaled_model

__all__ = [
    "AnswerCache",
    "AskedTool",
    "BaseLLMClient",
    "CachedAnswer",
    "ChatClient",
    "JournaledChatModel",
    "JournaledLLM",
    "LangChainLLM",
    "LiteLLM",
    "LlamaCppLLM",
    "MemoryCache",
    "ModelAnswer",
    "ModelParameters",
    "ModelRouter",
    "NodeLoggingCallback",
    "OllamaLLM",
    "OpenAILLM",
    "OpenRouterLLM",
    "Route",
    "TokenUsageCallback",
    "TokenUsageTracker",
    "Usage",
    "journaled_model",
    "load_model",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__, {"JournaledChatModel": "chat_model", "journaled_model": "chat_model"}
    )
