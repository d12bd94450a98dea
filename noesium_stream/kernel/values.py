"""What a node returned, as JSON that can be given to LangGraph again.

A node may return a dict, None, a `Command`, or a list of these. `_pending_events` is taken out of every
shape (LangGraph drops undeclared keys in silence). The live path uses the restored form as well, so that
a replay cannot differ from what happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langgraph.types import Command, Send

from noesium_stream.errors import StateError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.json_value import to_json

PENDING: Final = "_pending_events"
_COMMAND: Final = "__command__"


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
            raise StateError(f"{PENDING} holds {type(event).__name__}, which is no DomainEvent.")
        events.append(event)


def record(value: Any) -> Any:
    """A node's return value as JSON.

    Raises:
        StateError: it holds something that JSON cannot; the message names the path.
    """
    if isinstance(value, Command):
        if value.resume is not None or value.graph is not None:
            raise StateError(
                "A Command with `resume` or `graph` cannot be recorded; use `update` and `goto`."
            )
        return {_COMMAND: {"update": to_json(value.update, "update"), "goto": _record_goto(value.goto)}}
    if isinstance(value, list) and any(isinstance(item, Command) for item in value):
        return [record(item) for item in value]
    return to_json(value, "delta")


def restore(recorded: Any) -> Any:
    """What `record` was given, as LangGraph takes it."""
    if isinstance(recorded, dict) and recorded.keys() == {_COMMAND}:
        body = recorded[_COMMAND]
        goto = [_restore_target(item) for item in body["goto"]]
        return Command(update=body["update"], goto=goto)
    if isinstance(recorded, list):
        return [restore(item) for item in recorded]
    return recorded


def _record_goto(goto: Any) -> list[Any]:
    targets = [goto] if isinstance(goto, str | Send) else list(goto)
    return [
        {"node": item.node, "arg": to_json(item.arg, f"goto.{item.node}")} if isinstance(item, Send) else item
        for item in targets
    ]


def _restore_target(item: Any) -> Any:
    return Send(item["node"], item["arg"]) if isinstance(item, dict) else item
