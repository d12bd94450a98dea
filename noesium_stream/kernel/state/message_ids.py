"""Ids of chat messages that have none, derived from the run and the step.

LangGraph gives such messages random ids: by the reducer `add_messages`, and in a `DeltaChannel` when a task
writes (`ensure_message_ids`). Then the state would be another one on every execution. So they get their ids
before LangGraph sees them, in the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any, Final

from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages
from langgraph.channels import BinaryOperatorAggregate, DeltaChannel
from langgraph.channels.binop import _get_overwrite
from langgraph.graph.message import add_messages
from langgraph.types import Command, Overwrite

NextId = Callable[[], str]
_DELTA_REDUCER: Final = "_messages_delta_reducer"
_ROOT: Final = "__root__"
"""The key of a state without keys."""
_ROLES: Final = frozenset({"user", "human", "assistant", "ai", "tool", "system", "function"})
_TYPES: Final = frozenset({"human", "ai", "tool", "system", "function", "remove"})


class Held(Enum):
    """Which values of a key of the state are chat messages, and get ids."""

    ADDED = "all, by add_messages"
    DELTA = "all, in a DeltaChannel with LangGraph's reducer of messages"
    SOME = "those that are messages, in a DeltaChannel that may hold anything"


MessageKeys = Mapping[str, Held]
"""The keys of a state that may hold chat messages."""


def message_keys(graph: Any) -> MessageKeys:
    """The keys of a compiled graph's state in whose values LangGraph gives ids to messages."""
    found = ((name, _held(channel)) for name, channel in graph.channels.items())
    return {name: held for name, held in found if held is not None}


def _held(channel: Any) -> Held | None:
    if isinstance(channel, BinaryOperatorAggregate):
        return Held.ADDED if _adds_messages(channel.operator) else None
    if not isinstance(channel, DeltaChannel):
        return None
    reducer: Any = channel.reducer
    name, module = (str(getattr(reducer, attribute, "")) for attribute in ("__name__", "__module__"))
    return Held.DELTA if name == _DELTA_REDUCER and module.startswith("langgraph.") else Held.SOME


def _adds_messages(reducer: Any) -> bool:
    # `add_messages(format=…)` is a partial of the function behind it.
    if isinstance(reducer, partial):
        return getattr(reducer.func, "__name__", "") == "add_messages"
    return reducer is add_messages


def identified(value: Any, keys: MessageKeys, next_id: NextId) -> Any:
    """An update of the state, in any shape, in which every message of `keys` has an id.

    Args:
        value: a dict, a list of updates or pairs, a `Command`, or anything else, which is returned as it is.
        keys: see `message_keys`.
        next_id: makes ids.
    """
    if not keys:
        return value
    if isinstance(value, Command):
        if value.graph is not None or value.update is None:
            return value
        update = identified(value.update, keys, next_id)
        # LangGraph takes a message that is the whole update for one with keys.
        whole = isinstance(update, BaseMessage) and not isinstance(value.update, BaseMessage)
        return replace(value, update=[update] if whole else update)
    if _ROOT in keys and not _has_commands(value):
        return _named(value, keys[_ROOT], next_id)
    if isinstance(value, Mapping):
        named = {key: _named(item, keys.get(key), next_id) for key, item in value.items()}
        return named if any(key in keys for key in value) else value
    if isinstance(value, list | tuple):
        return [_pair_or_update(item, keys, next_id) for item in value]
    return value


def _has_commands(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(item, Command) for item in value)


def _pair_or_update(item: Any, keys: MessageKeys, next_id: NextId) -> Any:
    if isinstance(item, tuple) and len(item) == 2 and item[0] in keys:
        return (item[0], _named(item[1], keys[item[0]], next_id))
    return identified(item, keys, next_id) if isinstance(item, Command | Mapping) else item


def _named(value: Any, held: Held | None, next_id: NextId) -> Any:
    """What is written to one key, with ids."""
    if held is None or value is None:
        return value
    overwrites, given = _get_overwrite(value)
    if overwrites:
        name = _object_named if held is Held.SOME else _message_named
        named = _each(given, name, next_id) if isinstance(given, list | tuple) else given
        return value if named is given else Overwrite(named)
    if held is Held.ADDED:
        return _all_named(value, next_id)
    name = _message_named if held is Held.DELTA else _item_named
    if isinstance(value, list):
        return _each(value, name, next_id)
    if held is Held.SOME and _is_message_dict(value):
        return value if value.get("id") else {**value, "id": next_id()}
    return name(value, next_id)


def _all_named(messages: Any, next_id: NextId) -> Any:
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


def _each(items: list[Any] | tuple[Any, ...], name: Callable[[Any, NextId], Any], next_id: NextId) -> Any:
    """The items with ids, in a container of the same kind; the container itself if all have them."""
    named = [name(item, next_id) for item in items]
    if all(new is old for new, old in zip(named, items, strict=True)):
        return items
    return named if isinstance(items, list) else tuple(named)


def _object_named(item: Any, next_id: NextId) -> Any:
    """A message with an id; whatever else it is, as it is."""
    if isinstance(item, BaseMessage) and item.id is None:
        return item.model_copy(update={"id": next_id()})
    return item


def _item_named(item: Any, next_id: NextId) -> Any:
    return (_message_named if _is_message_dict(item) else _object_named)(item, next_id)


def _message_named(item: Any, next_id: NextId) -> Any:
    """A message with an id, of any form of one; LangGraph refuses what is none."""
    if isinstance(item, BaseMessage):
        return _object_named(item, next_id)
    try:
        (message,) = convert_to_messages([item])
    except Exception:  # of whatever kind: what it is about is told by LangGraph, which reads it next
        return item
    return message if message.id else message.model_copy(update={"id": next_id()})


def _is_message_dict(item: Any) -> bool:
    return isinstance(item, dict) and (
        _is_one_of(item.get("role"), _ROLES) or _is_one_of(item.get("type"), _TYPES)
    )


def _is_one_of(name: Any, names: frozenset[str]) -> bool:
    return isinstance(name, str) and name in names
