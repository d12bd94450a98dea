"""Ids for chat messages: LangGraph's `add_messages` gives random ones to those that have none.

A state with random ids is another one on every execution. So the kernel names them before LangGraph does,
by ids that are derived from the run and the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages
from langgraph.channels import BinaryOperatorAggregate
from langgraph.graph.message import add_messages
from langgraph.types import Command, Overwrite


def message_keys(graph: Any) -> frozenset[str]:
    """The keys of a compiled graph's state that `add_messages` reduces."""
    return frozenset(
        name
        for name, channel in graph.channels.items()
        if isinstance(channel, BinaryOperatorAggregate) and _adds_messages(channel.operator)
    )


def identified(value: Any, keys: frozenset[str], next_id: Callable[[], str]) -> Any:
    """An update of the state, in any shape, in which every message of `keys` has an id."""
    if not keys:
        return value
    if isinstance(value, Command):
        if value.graph is not None or value.update is None:
            return value
        return replace(value, update=identified(value.update, keys, next_id))
    if isinstance(value, Mapping):
        named = {key: _named(item, next_id) if key in keys else item for key, item in value.items()}
        return named if any(key in keys for key in value) else value
    if isinstance(value, list | tuple):
        return [_pair_or_update(item, keys, next_id) for item in value]
    return value


def _pair_or_update(item: Any, keys: frozenset[str], next_id: Callable[[], str]) -> Any:
    if isinstance(item, tuple) and len(item) == 2 and item[0] in keys:
        return (item[0], _named(item[1], next_id))
    return identified(item, keys, next_id) if isinstance(item, Command | Mapping) else item


def _named(messages: Any, next_id: Callable[[], str]) -> Any:
    if messages is None or isinstance(messages, Overwrite):
        return messages
    several = messages if isinstance(messages, list) else [messages]
    if all(isinstance(message, BaseMessage) and message.id is not None for message in several):
        return messages
    found = [
        message
        if isinstance(message, RemoveMessage) or message.id is not None
        else message.model_copy(update={"id": next_id()})
        for message in convert_to_messages(several)
    ]
    return found if isinstance(messages, list) else found[0]


def _adds_messages(reducer: Any) -> bool:
    # `add_messages(format=…)` is a partial of the function behind it.
    if isinstance(reducer, partial):
        return getattr(reducer.func, "__name__", "") == "add_messages"
    return reducer is add_messages
