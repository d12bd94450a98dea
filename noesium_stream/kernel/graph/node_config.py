"""LangGraph's messages to a node besides its input: commands of its subgraphs, and answers to interrupts."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph._internal._config import patch_configurable, recast_checkpoint_ns
from langgraph.errors import ParentCommand
from langgraph.types import Command

from noesium_stream.errors import NoesiumError
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.kernel.state.typed_json import encode

_CONF: Final = "configurable"
_SCRATCHPAD: Final = "__pregel_scratchpad"
_NAMESPACE: Final = "checkpoint_ns"


def input_hash_of(state: Any) -> str | None:
    """SHA-256 of a node's input; None if it cannot be computed: it may hold values outside the state."""
    try:
        return hashlib.sha256(canonical_json(encode(state, "input"))).hexdigest()
    except NoesiumError:
        return None


def for_this_graph(bubble: ParentCommand, config: RunnableConfig | None, name: str) -> Command[Any] | None:
    """The command of a subgraph's node to the graph of the node `name`; None if it is for another graph."""
    command: Command[Any] = bubble.args[0]
    namespace = str((config or {}).get(_CONF, {}).get(_NAMESPACE, ""))
    if command.graph not in (namespace, recast_checkpoint_ns(namespace), name):
        return None
    return Command(update=command.update, goto=command.goto)


@contextmanager
def answering(config: RunnableConfig | None, answers: list[Any]) -> Iterator[RunnableConfig | None]:
    """The configuration in which LangGraph's `interrupt()` finds these answers, in their order."""
    if not answers or config is None:
        yield config
        return
    pad = config[_CONF][_SCRATCHPAD]
    fresh = replace(pad, resume=list(answers), interrupt_counter=itertools.count().__next__)
    answered = patch_configurable(config, {_SCRATCHPAD: fresh})
    token = var_child_runnable_config.set(answered)  # where LangGraph looks for it
    try:
        yield answered
    finally:
        var_child_runnable_config.reset(token)
