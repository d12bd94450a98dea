"""A node's return value: checked, and recorded as JSON that can be given to LangGraph again.

A node may return a dict, None, a `NodeResult`, a pydantic or dataclass state, a `Command` or a list of these.
`_pending_events` is removed from every shape. The live path also uses the restored form, so that a replay
cannot differ from the execution.

LangGraph drops keys and targets that the graph does not have in silence, and gives random ids to chat
messages without one. Here unknown keys and targets are refused, and messages get ids that are derived from
the run and the step, so that the state is the same on every execution.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Final, NamedTuple

from langgraph._internal._fields import get_cached_annotated_keys, get_update_as_tuples
from langgraph.constants import END
from langgraph.types import Command, Send
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny

from noesium_stream.errors import KernelError, StateError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.kernel.state.message_ids import MessageKeys, identified
from noesium_stream.kernel.state.typed_json import check_size, decode, encode

PENDING: Final = "_pending_events"
_COMMAND: Final = "__command__"

Targets = frozenset[str] | None
"""Names of the possible target nodes; None if they are unknown."""


class NodeResult(BaseModel):
    """A node's return value in place of a dict: its delta of the state, and its events (RFC-1001 §7.1)."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    state_delta: dict[str, Any] = Field(default_factory=dict)
    events: list[SerializeAsAny[DomainEvent]] = Field(default_factory=list)


class NodeRules(NamedTuple):
    """Rules for the return values of a node.

    Attributes:
        name: the node's name.
        keys: the keys of the graph's state; None if they are unknown.
        messages: keys of the state that hold chat messages (see `message_keys`).
        targets: the nodes that it may name as the next ones.
    """

    name: str
    keys: frozenset[str] | None
    messages: MessageKeys
    targets: Targets


def returned(value: Any, rules: NodeRules, next_id: Callable[[], str]) -> tuple[Any, list[DomainEvent]]:
    """Split a node's return value into its delta in the recorded form, and its events.

    Args:
        value: what the node returned.
        rules: the node's rules.
        next_id: makes ids for chat messages.

    Raises:
        StateError, RecordTooLargeError, KernelError: it cannot be recorded or applied; names the node.
    """
    who = f"The node {rules.name}"
    try:
        value, events = take_events(value)
    except StateError as error:
        raise StateError(f"{who}: {error.message}", hint=error.hint) from error
    _check_keys(value, rules)
    check_goto(value, rules.targets, rules.name)
    try:
        delta = record(identified(value, rules.messages, next_id) if rules.messages else value)
    except StateError as error:
        raise StateError(f"{who}: {error.message}", hint=error.hint) from error
    check_size(delta, "delta", who)
    return delta, events


def _check_keys(value: Any, rules: NodeRules) -> None:
    """Refuse unknown keys: LangGraph drops them in silence, and most of them are typing errors."""
    if rules.keys is None:
        return
    if not (value is None or isinstance(value, Mapping | Command) or _has_commands(value)):
        raise StateError(
            f"The node {rules.name} returned a value of type {type(value).__name__}, which is no update.",
            hint="Return a dict with keys of the state, a Command, a list with Commands, or nothing.",
        )
    unknown = sorted(key for key in update_keys(value) if key not in rules.keys)
    if unknown:
        near = difflib.get_close_matches(unknown[0], rules.keys, 1)
        raise StateError(
            f"The node {rules.name} returned {', '.join(unknown)}, which the graph's state does not have.",
            hint=f"Did you mean {near[0]}?" if near else f"It has {', '.join(sorted(rules.keys))}.",
        )


def take_events(value: Any) -> tuple[Any, list[DomainEvent]]:
    """Split a node's return value into the value without `_pending_events` and those events.

    Raises:
        StateError: an item of `_pending_events` is not a `DomainEvent`.
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
        # A state object: LangGraph's own view of it as an update.
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
    """The value behind a recorded one, in a form that LangGraph accepts."""
    if isinstance(recorded, dict) and recorded.keys() == {_COMMAND}:
        body = recorded[_COMMAND]
        goto = [_restore_target(item) for item in body["goto"]]
        return Command(graph=body.get("graph"), update=decode(body["update"]), goto=goto)
    if isinstance(recorded, list):
        return [restore(item) for item in recorded]
    return decode(recorded)


def updates(recorded: Any) -> list[tuple[str, Any]]:
    """The writes to a graph's own state in a recorded value, in LangGraph's order."""
    if recorded is None:
        return []
    if isinstance(recorded, list):
        return [pair for item in recorded for pair in updates(item)]
    if recorded.keys() == {_COMMAND}:
        command = restore(recorded)
        return [] if command.graph == Command.PARENT else list(command._update_as_tuples())
    return list(decode(recorded).items())


def update_keys(value: Any) -> list[str]:
    """The keys of the state that a node's return value writes, in any shape."""
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


def _has_commands(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(item, Command) for item in value)


def check_goto(value: Any, known: Targets, node: str) -> None:
    """Refuse a node's return value that names an unknown node.

    Raises:
        KernelError: names the node, the target, and the existing nodes.
    """
    if isinstance(value, list | tuple):
        for item in value:
            check_goto(item, known, node)
    elif isinstance(value, Command) and value.graph is None:
        goto = value.goto
        check_targets([goto] if isinstance(goto, str | Send) else goto, known, f"The node {node}")


def check_targets(destinations: Iterable[Any], known: Targets, who: str) -> None:
    """Refuse the name of an unknown node.

    Raises:
        KernelError: names the node, the target, and the existing nodes.
    """
    if known is None:
        return
    for target in destinations:
        name = target.node if isinstance(target, Send) else target
        if name in known or (name == END and not isinstance(target, Send)):
            continue
        near = difflib.get_close_matches(str(name), sorted(known), 1)
        raise KernelError(
            f"{who} goes to {name!r}, which the graph does not have.",
            hint=f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(sorted(known))}.",
        )
