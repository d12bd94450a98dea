"""What a node returned, as JSON that can be given to LangGraph again.

A node may return a dict, None, a `NodeResult`, a pydantic or dataclass state, a `Command` or a list of these.
`_pending_events` is taken out of every shape (LangGraph drops undeclared keys in silence). The live path
uses the restored form as well, so that a replay cannot differ from what happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Final

from langgraph._internal._fields import get_cached_annotated_keys, get_update_as_tuples
from langgraph.types import Command, Send
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny

from noesium_stream.errors import StateError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.kernel.typed import decode, encode

PENDING: Final = "_pending_events"
_COMMAND: Final = "__command__"


class NodeResult(BaseModel):
    """What a node may return instead of a dict: its delta of the state, and its events (RFC-1001 §7.1)."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    state_delta: dict[str, Any] = Field(default_factory=dict)
    events: list[SerializeAsAny[DomainEvent]] = Field(default_factory=list)


def take_events(value: Any) -> tuple[Any, list[DomainEvent]]:
    """Split a node's return value into the value without `_pending_events` and those events.

    Raises:
        StateError: something in `_pending_events` is no `DomainEvent`.
    """
    events: list[DomainEvent] = []
    return _strip(value, events), events


def _strip(value: Any, events: list[DomainEvent]) -> Any:
    if isinstance(value, Command):
        update = _strip(value.update, events)
        return Command(graph=value.graph, update=update, resume=value.resume, goto=value.goto)
    if isinstance(value, NodeResult):
        events.extend(value.events)
        return _strip(value.state_delta, events)
    if isinstance(value, BaseModel) or is_dataclass(value):
        # A state object: what LangGraph takes as its update.
        value = dict(get_update_as_tuples(value, get_cached_annotated_keys(type(value))))
    if isinstance(value, Mapping):
        if PENDING not in value:
            return value
        _collect(value[PENDING], events)
        return {key: item for key, item in value.items() if key != PENDING}
    if isinstance(value, list | tuple) and any(isinstance(item, Command | Mapping) for item in value):
        return [_strip(item, events) for item in value]
    return value


def _collect(found: Any, events: list[DomainEvent]) -> None:
    for event in found if isinstance(found, Sequence) else [found]:
        if not isinstance(event, DomainEvent):
            raise StateError(
                f"{PENDING} holds {type(event).__name__}, which is no DomainEvent.",
                hint='Derive a class from DomainEvent: class Seen(DomainEvent, event_type="demo.seen").',
            )
        events.append(event)


def record(value: Any) -> Any:
    """A node's return value as JSON.

    Raises:
        StateError: a part of it cannot be recorded; the message names the path.
    """
    if isinstance(value, Command):
        if value.resume is not None or value.graph not in (None, Command.PARENT):
            raise StateError(
                "A Command with `resume` or a graph by name cannot be recorded; use `update`, `goto` and "
                "Command.PARENT."
            )
        body = {"update": encode(value.update, "update"), "goto": _record_goto(value.goto)}
        if value.graph is not None:
            body["graph"] = value.graph
        return {_COMMAND: body}
    if isinstance(value, list | tuple) and any(isinstance(item, Command) for item in value):
        return [record(item) for item in value]
    return encode(value, "delta")


def restore(recorded: Any) -> Any:
    """What `record` was given, as LangGraph takes it."""
    if isinstance(recorded, dict) and recorded.keys() == {_COMMAND}:
        body = recorded[_COMMAND]
        goto = [_restore_target(item) for item in body["goto"]]
        return Command(graph=body.get("graph"), update=decode(body["update"]), goto=goto)
    if isinstance(recorded, list):
        return [restore(item) for item in recorded]
    return decode(recorded)


def updates(recorded: Any) -> list[tuple[str, Any]]:
    """The writes to a graph's own state that a recorded value makes, in LangGraph's order."""
    if recorded is None:
        return []
    if isinstance(recorded, list):
        return [pair for item in recorded for pair in updates(item)]
    if recorded.keys() == {_COMMAND}:
        command = restore(recorded)
        return [] if command.graph == Command.PARENT else list(command._update_as_tuples())
    return list(decode(recorded).items())


def update_keys(value: Any) -> list[str]:
    """The keys of the state that a node's return value writes to, in whatever shape it has."""
    if isinstance(value, Command):
        return [] if value.graph is not None else [key for key, _ in value._update_as_tuples()]
    if isinstance(value, Mapping):
        return list(value)
    if isinstance(value, list | tuple):
        return [key for item in value if isinstance(item, Command | Mapping) for key in update_keys(item)]
    return []


def _record_goto(goto: Any) -> list[Any]:
    targets = [goto] if isinstance(goto, str | Send) else list(goto)
    return [
        {"node": item.node, "arg": encode(item.arg, f"goto.{item.node}")} if isinstance(item, Send) else item
        for item in targets
    ]


def _restore_target(item: Any) -> Any:
    return Send(item["node"], decode(item["arg"])) if isinstance(item, dict) else item
