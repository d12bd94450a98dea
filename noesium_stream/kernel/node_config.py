"""What LangGraph tells a node by its configuration: which task it is, and what was answered to it."""

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
from noesium_stream.event.canonical import canonical_json
from noesium_stream.kernel.history import StepKey, step_id
from noesium_stream.kernel.step import Step
from noesium_stream.kernel.typed import encode

_CONF: Final = "configurable"
_SCRATCHPAD: Final = "__pregel_scratchpad"
_NAMESPACE: Final = "checkpoint_ns"


def input_hash_of(state: Any) -> str | None:
    """SHA-256 of a node's input; None where it cannot be told: what is no part of the state may be in it."""
    try:
        return hashlib.sha256(canonical_json(encode(state, "input"))).hexdigest()
    except NoesiumError:
        return None


def for_this_graph(bubble: ParentCommand, config: RunnableConfig | None, name: str) -> Command[Any] | None:
    """What a node of a subgraph says to the graph of the node `name`; None where it means another one."""
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


def step_key(
    config: RunnableConfig | None, outer: Step | None, input: Any, within: str | None = None
) -> tuple[StepKey, str | None]:
    """The step's key, and the hash of its input where a graph begins that a body has called.

    `within` is what the task paths of a graph begin with that undoes a part of the run.
    """
    metadata = (config or {}).get("metadata", {})
    step, path = int(metadata["langgraph_step"]), task_path(metadata["langgraph_path"])
    if outer is None:
        return (step, path if within is None else f"{within}|0|{path}"), None
    # A node of a subgraph: under the step that runs it, and told apart where that one runs several.
    call = str(metadata.get("langgraph_checkpoint_ns", "")).split("|")[:-1]
    live = next((part for part in reversed(call) if part.isdigit()), "0")
    calls = outer.subcalls
    call_hash = input_hash_of(input) if not calls.declared and calls.is_first(live, step) else None
    number = calls.number(live, path, call_hash)
    return (step, f"{step_id(outer.key)}|{number}|{path}"), call_hash


def task_path(path: Any) -> str:
    """LangGraph's task path as a text that is the same in every process: `pull:weigh`, `push:0`."""
    if isinstance(path, tuple | list):
        parts = [task_path(part) for part in path if not isinstance(part, bool)]
        return ":".join(part.removeprefix("__pregel_") for part in parts)
    return str(path)
