"""Language models."""

from noesium_stream.kernel.modes import ModelParameters
from noesium_stream.llm.base import BaseLLMClient, JournaledLLM
from noesium_stream.llm.langchain import LangChainLLM

__all__ = ["BaseLLMClient", "JournaledLLM", "LangChainLLM", "ModelParameters"]
