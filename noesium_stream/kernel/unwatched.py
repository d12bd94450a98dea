"""A node and its writers as one, run without what is told to callbacks where there are none.

LangGraph runs them as a sequence that builds a callback manager of its own for each node and tells it of its
beginning and end, whether anybody listens or not: an eighth of what a run of two small nodes costs. Whether
somebody listens is known before: handlers and tracers of all kinds are in the manager that the node is given.
Then, and for streams of events, the sequence is run as LangGraph makes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import copy_context
from functools import cached_property
from typing import Any, Final, cast

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.pregel._read import PregelNode

_OF_THE_NODE: Final = ("run_name", "run_id")
"""What a node's configuration says of the node alone, and not of what its body calls."""


class UnwatchedNode(Runnable[Any, Any]):
    """What LangGraph executes for a node.

    Args:
        sequence: the body and the writers, as LangGraph combines them.
        bound: the body.
        writers: what is given its value, one after the other.
    """

    def __init__(
        self, sequence: Runnable[Any, Any], bound: Runnable[Any, Any], writers: list[Runnable[Any, Any]]
    ) -> None:
        self.name = getattr(bound, "name", None)
        self._sequence = sequence
        self._bound = bound
        self._writers = writers

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """As LangGraph does."""
        return self._sequence.invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the body in a task and a context of its own, then the writers."""
        if config is None or _is_watched(config):
            return await self._sequence.ainvoke(input, config, **kwargs)
        inner = cast(RunnableConfig, {key: value for key, value in config.items() if key not in _OF_THE_NODE})
        context = copy_context()
        context.run(var_child_runnable_config.set, inner)
        value = await asyncio.create_task(self._bound.ainvoke(input, inner, **kwargs), context=context)
        for writer in self._writers:
            value = await writer.ainvoke(value, inner)
        return value

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """As LangGraph does: somebody listens."""
        async for chunk in self._sequence.astream(input, config, **kwargs):
            yield chunk


def unwatched(node: PregelNode) -> PregelNode:
    """The same node, changed in place where LangGraph lets what it executes for one be set."""
    sequence, writers = node.node, node.flat_writers
    if sequence is not None and writers and isinstance(vars(PregelNode).get("node"), cached_property):
        node.node = UnwatchedNode(sequence, node.bound, writers)
    return node


def _is_watched(config: RunnableConfig) -> bool:
    manager = config.get("callbacks")
    if not isinstance(manager, BaseCallbackManager):
        return True
    return bool(manager.handlers or manager.inheritable_handlers)
