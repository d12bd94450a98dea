"""Tokens and steps as a program sees them while it runs (RFC-1001 §15.1).

What a run has on its log is `noesium costs`; this is for dashboards and tests within one process.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import LLMResult

from noesium_stream.llm.usage import MAX_TOKENS, Usage

_LOGGER: Final = logging.getLogger("noesium_stream.nodes")
_NODE: Final = "langgraph_node"


class TokenUsageTracker:
    """Sums of tokens by model, of the calls that this process has made; may be used in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Usage] = {}
        self._calls: dict[str, int] = {}

    def add(self, model: str, usage: Usage) -> None:
        """Add the tokens of one call."""
        with self._lock:
            before = self._found.get(model, Usage(0, 0, None, False))
            self._found[model] = Usage(
                before.input_tokens + usage.input_tokens,
                before.output_tokens + usage.output_tokens,
                (before.cached_tokens or 0) + (usage.cached_tokens or 0),
                before.estimated or usage.estimated,
            )
            self._calls[model] = self._calls.get(model, 0) + 1

    @property
    def by_model(self) -> dict[str, Usage]:
        """The sums; `estimated` if one of the numbers in it was."""
        with self._lock:
            return dict(self._found)

    @property
    def calls(self) -> dict[str, int]:
        """The number of calls by model."""
        with self._lock:
            return dict(self._calls)

    @property
    def total(self) -> int:
        """All tokens."""
        return sum(usage.total for usage in self.by_model.values())

    def reset(self) -> None:
        """Begin again at zero."""
        with self._lock:
            self._found.clear()
            self._calls.clear()


class TokenUsageCallback(BaseCallbackHandler):
    """Gives a tracker the tokens of chat models that are called through LangChain, in plain graphs, too.

    Calls of a `JournaledLLM` are among them where the callback is in the graph's configuration.
    """

    def __init__(self, tracker: TokenUsageTracker) -> None:
        self.tracker = tracker

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        """Count the tokens that the answer says."""
        for generations in response.generations:
            for generation in generations:
                message = getattr(generation, "message", None)
                usage = getattr(message, "usage_metadata", None)
                if usage is None:
                    continue
                metadata = getattr(message, "response_metadata", None) or {}
                model = str(metadata.get("model_name") or metadata.get("model") or "unknown")
                tokens = (_bounded(usage.get("input_tokens")), _bounded(usage.get("output_tokens")))
                self.tracker.add(model, Usage(*tokens))


class NodeLoggingCallback(BaseCallbackHandler):
    """Logs the begin, the end and the failure of each node of a graph.

    Args:
        logger: where; None: `noesium_stream.nodes`.
        level: of the begin and the end; failures are warnings.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logger or _LOGGER
        self._level = level
        self._begun: dict[UUID, tuple[str, float]] = {}

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A node begins; what runs within a node is not told."""
        node = (metadata or {}).get(_NODE)
        if node is None or kwargs.get("name") != node:
            return
        self._begun[run_id] = str(node), time.monotonic()
        self._logger.log(self._level, "node %s begins", node)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A node has ended."""
        begun = self._begun.pop(run_id, None)
        if begun is not None:
            self._logger.log(self._level, "node %s ended after %d ms", begun[0], _since(begun[1]))

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A node has failed."""
        begun = self._begun.pop(run_id, None)
        if begun is not None:
            self._logger.warning(
                "node %s failed after %d ms: %s", begun[0], _since(begun[1]), type(error).__name__
            )


def _since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)


def _bounded(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value <= MAX_TOKENS else 0
